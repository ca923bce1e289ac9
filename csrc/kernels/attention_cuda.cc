// Paged attention on the device: checks, the division into splits, which kernel runs.
#include "csrc/kernels/attention_cuda.h"

#include <algorithm>
#include <cmath>

#include "csrc/kernels/checks_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr int64_t kSplitAlignment = 64;  // tokens that a block's warps attend to at a time

int32_t check_task(const char* op, const AttentionTask& task) {
  if (const int32_t error = check_cache(op, task.cache)) return error;
  if (const int32_t error = check_activation(op, "q and out", task.dtype)) return error;
  PINFER_OPS_CHECK(task.num_tokens >= 0 && task.num_requests >= 0 && task.num_requests <= 65535,
                   "%s: num_tokens must be at least 0 and num_requests 0 to 65535, got %lld and "
                   "%lld",
                   op, number(task.num_tokens), number(task.num_requests));
  PINFER_OPS_CHECK(task.num_heads >= 1 && task.num_heads % task.cache.num_kv_heads == 0,
                   "%s: num_heads must be a multiple of num_kv_heads, got %lld and %lld", op,
                   number(task.num_heads), number(task.cache.num_kv_heads));
  PINFER_OPS_CHECK(task.num_tokens * task.num_heads < int64_t{1} << 31,
                   "%s: %lld tokens of %lld heads are too many", op, number(task.num_tokens),
                   number(task.num_heads));
  PINFER_OPS_CHECK(task.max_blocks >= 0, "%s: max_blocks must be at least 0, got %lld", op,
                   number(task.max_blocks));
  PINFER_OPS_CHECK(std::isfinite(task.scale), "%s: scale must be finite", op);
  PINFER_OPS_CHECK(task.sliding_window >= 0, "%s: sliding_window must be at least 0, got %d", op,
                   task.sliding_window);
  PINFER_OPS_CHECK(task.logit_softcap >= 0, "%s: logit_softcap must be at least 0, got %g", op,
                   static_cast<double>(task.logit_softcap));
  PINFER_OPS_CHECK(task.cache.dtype != PINFER_BFLOAT16 || task.dtype != PINFER_FLOAT16,
                   "%s: a bfloat16 cache does not go with float16 rows", op);
  PINFER_OPS_CHECK(task.cache.dtype != PINFER_FLOAT16 || task.dtype != PINFER_BFLOAT16,
                   "%s: a float16 cache does not go with bfloat16 rows", op);
  if (task.num_tokens == 0 || task.num_requests == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(task.q != nullptr && task.out != nullptr && task.block_table != nullptr &&
                       task.seq_lens != nullptr && task.query_start_loc != nullptr,
                   "%s: tensors must not be null", op);
  return PINFER_OPS_OK;
}

int64_t count_splits(int64_t max_seq_len, int64_t split_size) {
  return std::max<int64_t>(1, (max_seq_len + split_size - 1) / split_size);
}

// Bytes of the states of a split attention, a multiple of 16; values follow.
size_t state_bytes(int64_t num_tokens, int64_t num_heads, int64_t num_splits) {
  return (static_cast<size_t>(num_tokens * num_heads * num_splits) * 2 * sizeof(float) + 15) / 16 *
         16;
}

}  // namespace

int32_t check_cache(const char* op, const KVCache& cache) {
  PINFER_OPS_CHECK(cache.dtype == PINFER_FLOAT32 || cache.dtype == PINFER_BFLOAT16 ||
                       cache.dtype == PINFER_FLOAT16 || cache.dtype == PINFER_FLOAT8_E4M3,
                   "%s: cache dtype must be float32 (6), bfloat16 (15), float16 (5) or "
                   "float8_e4m3 (24), got %d",
                   op, cache.dtype);
  PINFER_OPS_CHECK(cache.head_dim >= 1 && cache.head_dim <= kMaxCudaHeadDim,
                   "%s: head_dim must be 1 to %lld, got %lld", op, number(kMaxCudaHeadDim),
                   number(cache.head_dim));
  PINFER_OPS_CHECK(cache.block_size >= 16 && cache.block_size <= 256 && cache.block_size % 16 == 0,
                   "%s: block_size must be a multiple of 16 up to 256, got %lld", op,
                   number(cache.block_size));
  PINFER_OPS_CHECK(cache.num_kv_heads >= 1 && cache.num_blocks >= 0,
                   "%s: num_kv_heads must be at least 1 and num_blocks at least 0, got %lld and "
                   "%lld",
                   op, number(cache.num_kv_heads), number(cache.num_blocks));
  PINFER_OPS_CHECK(cache.k_scale > 0 && std::isfinite(cache.k_scale) && cache.v_scale > 0 &&
                       std::isfinite(cache.v_scale),
                   "%s: k_scale and v_scale must be positive and finite, got %g and %g", op,
                   static_cast<double>(cache.k_scale), static_cast<double>(cache.v_scale));
  PINFER_OPS_CHECK(cache.num_blocks == 0 || (cache.k != nullptr && cache.v != nullptr),
                   "%s: the cache must not be null", op);
  PINFER_OPS_CHECK(is_aligned(cache.k, 16) && is_aligned(cache.v, 16),
                   "%s: the cache must be aligned to 16 bytes", op);
  return PINFER_OPS_OK;
}

size_t attention_workspace_bytes(int64_t num_tokens, int64_t num_heads, int64_t head_dim,
                                 int64_t max_seq_len, int64_t split_size) {
  const int64_t num_splits = count_splits(max_seq_len, split_size);
  if (num_splits == 1) return 0;
  return state_bytes(num_tokens, num_heads, num_splits) +
         static_cast<size_t>(num_tokens * num_heads * num_splits * padded_head_dim(head_dim)) *
             sizeof(float);
}

int64_t choose_split_size(int64_t num_requests, int64_t num_kv_heads, int64_t max_seq_len,
                          int64_t num_sms) {
  // Three blocks fit a processor. Below 128 tokens, merging costs more than it gains; above 512,
  // four times as many blocks end more evenly.
  const int64_t alone = std::max<int64_t>(1, num_requests * num_kv_heads);
  const int64_t num_splits = std::max<int64_t>(1, (3 * num_sms + alone - 1) / alone);
  int64_t size = std::max<int64_t>(128, (max_seq_len + num_splits - 1) / num_splits);
  if (size > 512) size = std::max<int64_t>(512, size / 4);
  return (size + kSplitAlignment - 1) / kSplitAlignment * kSplitAlignment;
}

int32_t attend_split(const AttentionTask& task, int64_t max_rows, int64_t max_seq_len,
                     int64_t split_size, void* workspace, size_t workspace_bytes, Stream stream) {
  const char* op = "attend_split";
  if (const int32_t error = check_task(op, task)) return error;
  PINFER_OPS_CHECK(max_rows >= 0 && max_rows <= 65535, "%s: max_rows must be 0 to 65535, got %lld",
                   op, number(max_rows));
  PINFER_OPS_CHECK(max_seq_len >= 0 && max_seq_len <= 1 << 30,
                   "%s: max_seq_len must be 0 to 2^30, got %lld", op, number(max_seq_len));
  PINFER_OPS_CHECK(
      split_size >= kSplitAlignment && split_size % kSplitAlignment == 0 && split_size <= 1 << 30,
      "%s: split_size must be a multiple of %lld up to 2^30, got %lld", op, number(kSplitAlignment),
      number(split_size));
  if (task.num_tokens == 0 || task.num_requests == 0 || max_rows == 0) return PINFER_OPS_OK;
  const size_t wanted = attention_workspace_bytes(task.num_tokens, task.num_heads,
                                                  task.cache.head_dim, max_seq_len, split_size);
  PINFER_OPS_CHECK(workspace_bytes >= wanted && (wanted == 0 || workspace != nullptr),
                   "%s: needs a workspace of %zu bytes, got %zu", op, wanted, workspace_bytes);
  PINFER_OPS_CHECK(is_aligned(workspace, 16), "%s: the workspace must be aligned to 16 bytes", op);

  const bool is_float32 = task.cache.dtype == PINFER_FLOAT32;
  const int64_t rows = max_rows * (task.num_heads / task.cache.num_kv_heads);
  const int64_t tile = is_float32 ? kSplitFloat32Rows : kSplitRows;
  const int64_t num_splits = count_splits(max_seq_len, split_size);
  SplitArguments a = {task,
                      static_cast<int>(split_size),
                      static_cast<int>(num_splits),
                      static_cast<int>((rows + tile - 1) / tile),
                      static_cast<float*>(workspace),
                      nullptr};
  if (num_splits > 1) {
    a.values = reinterpret_cast<float*>(static_cast<char*>(workspace) +
                                        state_bytes(task.num_tokens, task.num_heads, num_splits));
  }
  const auto attend = is_float32                            ? attend_split_float32
                      : task.cache.dtype == PINFER_BFLOAT16 ? attend_split_bfloat16
                      : task.cache.dtype == PINFER_FLOAT16  ? attend_split_float16
                                                            : attend_split_float8;
  if (const int32_t error = attend(a, rows, stream)) return error;
  return num_splits > 1 ? merge_splits(a, max_rows, stream) : PINFER_OPS_OK;
}

int32_t attend_prefill(const AttentionTask& task, Stream stream) {
  const char* op = "attend_prefill";
  if (const int32_t error = check_task(op, task)) return error;
  PINFER_OPS_CHECK(task.cache.dtype != PINFER_FLOAT32,
                   "%s: tensor cores do not take a float32 cache; use attend_split", op);
  if (task.num_tokens == 0 || task.num_requests == 0) return PINFER_OPS_OK;
  if (task.cache.dtype == PINFER_BFLOAT16) return attend_prefill_bfloat16(task, stream);
  if (task.cache.dtype == PINFER_FLOAT16) return attend_prefill_float16(task, stream);
  return attend_prefill_float8(task, stream);
}

}  // namespace pinfer::cuda
