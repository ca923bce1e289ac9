// pinfer_paged_attention: checks, cache writes, division of the work over rows and context.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "csrc/kernels/kernels.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/scratch.h"
#include "csrc/threads/thread_pool.h"

namespace pinfer {

namespace {

constexpr int64_t kMaxBlockSize = 256;

// Numbers written below which a fork-join does not pay.
constexpr int64_t kSerialWrite = 16 * 1024;

struct Arguments {
  const float* q;
  const float* k;
  const float* v;
  void* k_cache;
  void* v_cache;
  int32_t cache_dtype;
  const int64_t* slot_mapping;
  const int32_t* block_table;
  const int32_t* seq_lens;
  const int32_t* query_start_loc;
  double scale;
  int32_t sliding_window;
  double logit_softcap;
  int64_t num_tokens, num_requests, num_heads, num_kv_heads, head_dim;
  int64_t num_blocks, block_size, max_blocks;
  float* out;

  int64_t num_rows(int64_t request) const {
    return query_start_loc[request + 1] - query_start_loc[request];
  }
  int64_t group_size() const { return num_heads / num_kv_heads; }
  // Bytes of a token's K or V of one head.
  int64_t token_bytes() const {
    if (cache_dtype == PINFER_INT8) return int8_token_bytes(head_dim);
    return head_dim * (cache_dtype == PINFER_FLOAT32 ? 4 : 2);
  }
  // First position that the row at `position` attends to.
  int64_t first_position(int64_t position) const {
    return sliding_window > 0 ? std::max<int64_t>(0, position + 1 - sliding_window) : 0;
  }
};

// Rows (query, head of the group) of one request and kv head that one thread computes.
struct Chunk {
  int64_t request;
  int64_t kv_head;
  int64_t row_begin, row_end;  // query * group_size + head in group
  int64_t partition_begin, partition_end;
};

int32_t check_sizes(const Arguments& a) {
  PINFER_OPS_CHECK(a.num_tokens >= 0 && a.num_requests >= 0,
                   "paged_attention: num_tokens and num_requests must be at least 0, got %lld and "
                   "%lld",
                   static_cast<long long>(a.num_tokens), static_cast<long long>(a.num_requests));
  PINFER_OPS_CHECK(a.num_kv_heads >= 1 && a.num_heads >= 1 && a.num_heads % a.num_kv_heads == 0,
                   "paged_attention: num_heads must be a multiple of num_kv_heads, got %lld and "
                   "%lld",
                   static_cast<long long>(a.num_heads), static_cast<long long>(a.num_kv_heads));
  PINFER_OPS_CHECK(a.cache_dtype == PINFER_FLOAT32 || a.cache_dtype == PINFER_BFLOAT16 ||
                       a.cache_dtype == PINFER_INT8,
                   "paged_attention: cache dtype must be float32 (6), bfloat16 (15) or int8 (1), "
                   "got %d",
                   a.cache_dtype);
  PINFER_OPS_CHECK(a.head_dim >= 1 && a.head_dim <= kMaxHeadDim,
                   "paged_attention: head_dim must be 1 to %lld, got %lld",
                   static_cast<long long>(kMaxHeadDim), static_cast<long long>(a.head_dim));
  PINFER_OPS_CHECK(a.cache_dtype != PINFER_BFLOAT16 || a.head_dim % 2 == 0,
                   "paged_attention: head_dim must be even in a bfloat16 cache, got %lld",
                   static_cast<long long>(a.head_dim));
  PINFER_OPS_CHECK(a.block_size >= kPanelWidth && a.block_size <= kMaxBlockSize &&
                       a.block_size % kPanelWidth == 0,
                   "paged_attention: block_size must be a multiple of 16 up to 256, got %lld",
                   static_cast<long long>(a.block_size));
  PINFER_OPS_CHECK(a.num_blocks >= 0 && a.max_blocks >= 0,
                   "paged_attention: num_blocks and max_blocks must be at least 0, got %lld and "
                   "%lld",
                   static_cast<long long>(a.num_blocks), static_cast<long long>(a.max_blocks));
  PINFER_OPS_CHECK(a.sliding_window >= 0,
                   "paged_attention: sliding_window must be at least 0, got %d", a.sliding_window);
  PINFER_OPS_CHECK(a.logit_softcap >= 0,
                   "paged_attention: logit_softcap must be at least 0, got %g", a.logit_softcap);
  PINFER_OPS_CHECK(a.query_start_loc != nullptr,
                   "paged_attention: query_start_loc must not be null");
  return PINFER_OPS_OK;
}

int32_t check_request(const Arguments& a, int64_t s) {
  const int64_t rows = a.num_rows(s), length = a.seq_lens[s];
  const auto id = static_cast<long long>(s);
  PINFER_OPS_CHECK(rows >= 0,
                   "paged_attention: query_start_loc must not decrease, got %d after %d at request "
                   "%lld",
                   a.query_start_loc[s + 1], a.query_start_loc[s], id);
  if (rows == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(length >= rows,
                   "paged_attention: seq_lens[%lld] must be at least the request's %lld rows, got "
                   "%lld",
                   id, static_cast<long long>(rows), static_cast<long long>(length));
  const int64_t num_used = (length + a.block_size - 1) / a.block_size;
  PINFER_OPS_CHECK(num_used <= a.max_blocks,
                   "paged_attention: seq_lens[%lld] = %lld needs %lld blocks, block_table has %lld",
                   id, static_cast<long long>(length), static_cast<long long>(num_used),
                   static_cast<long long>(a.max_blocks));
  const int64_t first = a.first_position(length - rows) / a.block_size;
  for (int64_t i = first; i < num_used; ++i) {
    const int32_t block = a.block_table[s * a.max_blocks + i];
    PINFER_OPS_CHECK(block >= 0 && block < a.num_blocks,
                     "paged_attention: block_table[%lld, %lld] must be in [0, %lld), got %d", id,
                     static_cast<long long>(i), static_cast<long long>(a.num_blocks), block);
  }
  return PINFER_OPS_OK;
}

int32_t check(const Arguments& a) {
  if (const int32_t error = check_sizes(a)) return error;
  PINFER_OPS_CHECK(a.query_start_loc[0] == 0 && a.query_start_loc[a.num_requests] == a.num_tokens,
                   "paged_attention: query_start_loc must go from 0 to num_tokens %lld, got %d to "
                   "%d",
                   static_cast<long long>(a.num_tokens), a.query_start_loc[0],
                   a.query_start_loc[a.num_requests]);
  if (a.num_tokens == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(a.q != nullptr && a.k != nullptr && a.v != nullptr && a.k_cache != nullptr &&
                       a.v_cache != nullptr && a.slot_mapping != nullptr &&
                       a.block_table != nullptr && a.seq_lens != nullptr && a.out != nullptr,
                   "paged_attention: tensors must not be null");
  for (int64_t s = 0; s < a.num_requests; ++s) {
    if (const int32_t error = check_request(a, s)) return error;
  }
  const int64_t num_slots = a.num_blocks * a.block_size;
  for (int64_t t = 0; t < a.num_tokens; ++t) {
    PINFER_OPS_CHECK(a.slot_mapping[t] >= -1 && a.slot_mapping[t] < num_slots,
                     "paged_attention: slot_mapping[%lld] must be -1 or in [0, %lld), got %lld",
                     static_cast<long long>(t), static_cast<long long>(num_slots),
                     static_cast<long long>(a.slot_mapping[t]));
  }
  return PINFER_OPS_OK;
}

void write_cache(const Arguments& a, const AttentionKernel& kernel) {
  const int64_t row_size = a.num_kv_heads * a.head_dim;
  const int64_t head_bytes = a.block_size * a.token_bytes();
  const int64_t grain = std::max<int64_t>(1, kSerialWrite / row_size);
  parallel_for(a.num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = a.slot_mapping[t];
      if (slot < 0) continue;
      for (int64_t h = 0; h < a.num_kv_heads; ++h) {
        const int64_t head = (slot / a.block_size * a.num_kv_heads + h) * head_bytes;
        kernel.write(a.k + t * row_size + h * a.head_dim, a.v + t * row_size + h * a.head_dim,
                     a.head_dim, slot % a.block_size, static_cast<char*>(a.k_cache) + head,
                     static_cast<char*>(a.v_cache) + head);
      }
    }
  });
}

std::vector<Chunk> make_chunks(const Arguments& a) {
  std::vector<Chunk> chunks;
  for (int64_t s = 0; s < a.num_requests; ++s) {
    const int64_t rows = a.num_rows(s) * a.group_size();
    const int64_t first_query = a.seq_lens[s] - a.num_rows(s);  // its position
    for (int64_t row = 0; row < rows; row += kMaxAttentionRows) {
      const int64_t row_end = std::min<int64_t>(row + kMaxAttentionRows, rows);
      const int64_t lowest = a.first_position(first_query + row / a.group_size());
      const int64_t end = first_query + (row_end - 1) / a.group_size() + 1;
      for (int64_t h = 0; h < a.num_kv_heads; ++h) {
        chunks.push_back({s, h, row, row_end, lowest / kPartitionSize,
                          (end + kPartitionSize - 1) / kPartitionSize});
      }
    }
  }
  // Longest first: a long one that starts last would keep a single thread busy.
  std::stable_sort(chunks.begin(), chunks.end(), [](const Chunk& x, const Chunk& y) {
    return x.partition_end - x.partition_begin > y.partition_end - y.partition_begin;
  });
  return chunks;
}

AttentionTask make_task(const Arguments& a, const Chunk& chunk) {
  AttentionTask task;
  task.k_cache = a.k_cache;
  task.v_cache = a.v_cache;
  task.block_table = a.block_table + chunk.request * a.max_blocks;
  task.block_size = a.block_size;
  task.num_kv_heads = a.num_kv_heads;
  task.kv_head = chunk.kv_head;
  task.head_dim = a.head_dim;
  task.scale = static_cast<float>(a.scale);
  task.logit_softcap = static_cast<float>(a.logit_softcap);
  task.num_rows = static_cast<int>(chunk.row_end - chunk.row_begin);
  const int64_t first_query = a.seq_lens[chunk.request] - a.num_rows(chunk.request);
  for (int i = 0; i < task.num_rows; ++i) {
    const int64_t row = chunk.row_begin + i;
    const int64_t query = row / a.group_size();
    const int64_t head = chunk.kv_head * a.group_size() + row % a.group_size();
    const int64_t token = a.query_start_loc[chunk.request] + query;
    task.q[i] = a.q + (token * a.num_heads + head) * a.head_dim;
    task.begin[i] = a.first_position(first_query + query);
    task.end[i] = first_query + query + 1;
  }
  return task;
}

void finish_chunk(const Arguments& a, const AttentionKernel& kernel, const AttentionTask& task,
                  const float* states) {
  const int64_t state_size = attention_state_size(a.head_dim);
  for (int i = 0; i < task.num_rows; ++i) {
    // q and out have the same shape.
    kernel.finish(states + i * state_size, a.head_dim, a.out + (task.q[i] - a.q));
  }
}

// A thread computes whole chunks.
void attend_by_chunks(const Arguments& a, const AttentionKernel& kernel,
                      const std::vector<Chunk>& chunks) {
  parallel_for(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    alignas(64) float states[kMaxAttentionRows * attention_state_size(kMaxHeadDim)];
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTask task = make_task(a, chunks[static_cast<size_t>(i)]);
      kernel.attend(task, chunks[static_cast<size_t>(i)].partition_begin,
                    chunks[static_cast<size_t>(i)].partition_end, states);
      finish_chunk(a, kernel, task, states);
    }
  });
}

// Few chunks over long contexts: a thread computes single partitions; they are merged afterwards,
// in the order in which a single thread would have merged them.
void attend_by_partitions(const Arguments& a, const AttentionKernel& kernel,
                          const std::vector<Chunk>& chunks) {
  struct Part {
    size_t chunk;
    int64_t partition;
    int64_t state;  // index of its states' first row
  };
  const int64_t state_size = attention_state_size(a.head_dim);
  std::vector<Part> parts;
  std::vector<size_t> first_part;
  int64_t num_states = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    first_part.push_back(parts.size());
    for (int64_t p = chunks[i].partition_begin; p < chunks[i].partition_end; ++p) {
      parts.push_back({i, p, num_states});
      num_states += chunks[i].row_end - chunks[i].row_begin;
    }
  }
  first_part.push_back(parts.size());
  static thread_local Scratch scratch;
  float* states = static_cast<float*>(
      scratch.reserve(static_cast<size_t>(num_states * state_size) * sizeof(float)));
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Part& part = parts[static_cast<size_t>(i)];
      kernel.attend(make_task(a, chunks[part.chunk]), part.partition, part.partition + 1,
                    states + part.state * state_size);
    }
  });
  for (size_t i = 0; i < chunks.size(); ++i) {
    const AttentionTask task = make_task(a, chunks[i]);
    float* merged = states + parts[first_part[i]].state * state_size;
    for (size_t p = first_part[i] + 1; p < first_part[i + 1]; ++p) {
      const float* later = states + parts[p].state * state_size;
      for (int r = 0; r < task.num_rows; ++r) {
        kernel.merge(later + r * state_size, a.head_dim, merged + r * state_size);
      }
    }
    finish_chunk(a, kernel, task, merged);
  }
}

int32_t paged_attention(const Arguments& a) {
  if (const int32_t error = check(a)) return error;
  if (a.num_tokens == 0) return PINFER_OPS_OK;
  const KernelTable& table = kernels();
  const AttentionKernel& kernel = a.cache_dtype == PINFER_FLOAT32    ? *table.attention_float32
                                  : a.cache_dtype == PINFER_BFLOAT16 ? *table.attention_bfloat16
                                                                     : *table.attention_int8;
  const std::vector<Chunk> chunks = make_chunks(a);
  write_cache(a, kernel);
  const int64_t num_threads = current_num_threads();
  const int64_t longest = chunks.front().partition_end - chunks.front().partition_begin;
  if (num_threads > 1 && longest > 1 && static_cast<int64_t>(chunks.size()) < 4 * num_threads) {
    attend_by_partitions(a, kernel, chunks);
  } else {
    attend_by_chunks(a, kernel, chunks);
  }
  return PINFER_OPS_OK;
}

}  // namespace

}  // namespace pinfer

int32_t pinfer_paged_attention(const float* q, const float* k, const float* v, void* k_cache,
                               void* v_cache, int32_t cache_dtype, const int64_t* slot_mapping,
                               const int32_t* block_table, const int32_t* seq_lens,
                               const int32_t* query_start_loc, double scale, int32_t sliding_window,
                               double logit_softcap, int64_t num_tokens, int64_t num_requests,
                               int64_t num_heads, int64_t num_kv_heads, int64_t head_dim,
                               int64_t num_blocks, int64_t block_size, int64_t max_blocks,
                               float* out) {
  const pinfer::Arguments arguments = {q,
                                       k,
                                       v,
                                       k_cache,
                                       v_cache,
                                       cache_dtype,
                                       slot_mapping,
                                       block_table,
                                       seq_lens,
                                       query_start_loc,
                                       scale,
                                       sliding_window,
                                       logit_softcap,
                                       num_tokens,
                                       num_requests,
                                       num_heads,
                                       num_kv_heads,
                                       head_dim,
                                       num_blocks,
                                       block_size,
                                       max_blocks,
                                       out};
  return pinfer::run_op("paged_attention", [&] { return pinfer::paged_attention(arguments); });
}
