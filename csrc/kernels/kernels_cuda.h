// The CUDA kernels: launchers that check what the host can know, and start kernels on a stream.
//
// - All pointers are device memory, tensors are dense and row-major; shapes are in brackets.
// - A launcher allocates nothing, waits for nothing and is legal while a stream is captured into a
//   CUDA graph. Workspace is the caller's; it may be used again by later work of the same stream.
// - Returns 0, or an error code of csrc/ops.h with the reason in pinfer_ops_last_error(). On
//   PINFER_OPS_INVALID_ARGUMENT nothing has been launched.
// - What lies in device memory (ids, slots, block tables, lengths) is not checked: the engine does.
// - dtype codes are those of csrc/ops.h. Activations are float32, bfloat16 or float16.
// - Results are the same in every run: sums have a fixed order, there are no atomic additions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinfer::cuda {

using Stream = void*;  // a cudaStream_t

// ---- KV cache ----

// K and V [num_blocks, num_kv_heads, block_size, padded_head_dim(head_dim)] each; the numbers
// beyond head_dim are zeros, which write_rotary_cache() writes.
struct KVCache {
  void* k;
  void* v;
  int32_t dtype;  // float32 (for tests), bfloat16, float16 or float8_e4m3
  int64_t num_blocks, block_size, num_kv_heads, head_dim;
  // A number of the cache stands for itself times this.
  float k_scale = 1, v_scale = 1;
};

inline constexpr int64_t kMaxCudaHeadDim = 256;
inline constexpr int64_t padded_head_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Rotates q and k and writes k and v into the cache: one launch for what takes four otherwise.
struct RotaryCacheTask {
  const void* q;  // [num_tokens, num_heads, head_dim], rows q_stride elements apart
  const void* k;  // [num_tokens, num_kv_heads, head_dim], rows k_stride elements apart
  const void* v;
  int64_t q_stride, k_stride, v_stride;
  int32_t dtype;     // of q, k, v and q_out
  const float* cos;  // [num_tokens, rotary_dim / 2]
  const float* sin;
  int64_t rotary_dim;           // leading numbers of a head, rotated as two halves; 0: none
  void* q_out;                  // [num_tokens, num_heads, head_dim]; null: q is left as it is
  const int64_t* slot_mapping;  // [num_tokens] block id * block_size + offset, or -1: not written
  KVCache cache;
  int64_t num_tokens, num_heads;
};
int32_t write_rotary_cache(const RotaryCacheTask& task, Stream stream);

// ---- paged attention ----

// What pinfer_paged_attention (csrc/ops.h) means by its arguments, without the write: K and V of
// the step are in the cache. Rows of q are rounded to the dtype that the cache is multiplied in:
// the cache's own, or for float8 that of q (bfloat16 for float32).
struct AttentionTask {
  const void* q;  // [num_tokens, num_heads, head_dim]
  void* out;      // the same
  int32_t dtype;  // of q and out
  KVCache cache;
  const int32_t* block_table;      // [num_requests, max_blocks]
  const int32_t* seq_lens;         // [num_requests]
  const int32_t* query_start_loc;  // [num_requests + 1], ascending
  int64_t num_tokens;  // rows of q at most; only those that query_start_loc names are touched
  int64_t num_requests, num_heads, max_blocks;
  float scale;
  int32_t sliding_window;  // 0: none
  float logit_softcap;     // 0: none
};

// Decode: contexts are divided into splits of split_size tokens, at the same positions whatever
// else the step holds, which different thread blocks attend to; a second launch merges them. Good
// for requests of few rows (max_rows of one request at most). Results depend on split_size, not on
// the batch. max_seq_len bounds seq_lens; longer contexts would be cut off.
//
// workspace: attention_workspace_bytes(), aligned to 16.
int32_t attend_split(const AttentionTask& task, int64_t max_rows, int64_t max_seq_len,
                     int64_t split_size, void* workspace, size_t workspace_bytes, Stream stream);

// 0 where one split holds max_seq_len.
size_t attention_workspace_bytes(int64_t num_tokens, int64_t num_heads, int64_t head_dim,
                                 int64_t max_seq_len, int64_t split_size);

// A split_size, multiple of 64, with which num_requests requests of one row fill num_sms
// processors.
int64_t choose_split_size(int64_t num_requests, int64_t num_kv_heads, int64_t max_seq_len,
                          int64_t num_sms);

// Prefill: tiles of rows against tiles of context on tensor cores. Any mixture of lengths, but a
// long context of a request of few rows is one thread block's work for each kv head. Not for
// float32 caches.
int32_t attend_prefill(const AttentionTask& task, Stream stream);

// ---- weights ----

// A linear layer's weight [out_features, in_features], rows padded with zeros to a multiple of
// weight_step() numbers; aligned to 16 bytes.
//   bfloat16, float16  the numbers
//   float8_e4m3        the numbers; a weight is number * scales[output], float32
//   int4               a weight is nibble * scales[output, group] + minima[output, group], float16,
//                      for groups of group_size numbers of k, 32 or a power of 2 above. 128 numbers
//                      take 16 words of 32 bits: word 4 * t + j holds the numbers 32 * j + 8 * t +
//                      i, i = 0 ... 7, even ones at bit 2 * i, odd ones at bit 16 + 2 * (i - 1)
struct Weight {
  const void* data;
  int32_t dtype;
  int64_t out_features, in_features;
  const void* scales = nullptr;
  const void* minima = nullptr;
  int64_t group_size = 0;
};

// Numbers that a row is padded to a multiple of: 32, 64 (float8) or 128 (int4).
int64_t weight_step(int32_t dtype);
inline int64_t padded_in_features(int32_t dtype, int64_t in_features) {
  const int64_t step = weight_step(dtype);
  return step == 0 ? 0 : (in_features + step - 1) / step * step;
}
// Groups of a row of an int4 weight, those of the padding included.
inline constexpr int64_t num_weight_groups(int64_t in_features, int64_t group_size) {
  const int64_t padded = (in_features + 127) / 128 * 128;
  return (padded + group_size - 1) / group_size;
}

// out [num_tokens, out_features] = x [num_tokens, in_features] * weight^T for 1 to 16 rows: reads
// the weight once. Rows are rounded to bfloat16, or to float16 where the weight is float16 or (of
// quantised weights) x is; products are summed in float32. A row's result does not depend on the
// others.
inline constexpr int64_t kMaxLinearRows = 16;
int32_t multiply_few_rows(const void* x, int32_t x_dtype, int64_t num_tokens, const Weight& weight,
                          void* out, int32_t out_dtype, Stream stream);

// out [num_rows, hidden_size] = rows of a table with vocab_size outputs and hidden_size inputs.
// Rows are ids[0], ids[1], ..., or, where ids is null, first_row, first_row + 1, ...
// out_stride: elements between rows of out, hidden_size at least; what lies between is zeroed.
int32_t gather_rows(const Weight& table, const int32_t* ids, int64_t first_row, int64_t num_rows,
                    void* out, int32_t out_dtype, int64_t out_stride, Stream stream);

// out [num_rows, row_size] = x [num_rows, row_size] of float32 in another dtype; out_stride as for
// gather_rows().
int32_t round_rows(const float* x, int64_t num_rows, int64_t row_size, void* out, int32_t out_dtype,
                   int64_t out_stride, Stream stream);

// x [count] = (x + y) * scale, all float32. y may be null: zeros.
int32_t add_scaled(float* x, const float* y, int64_t count, float scale, Stream stream);

// ---- sampling ----

// ids [num_rows] = index of the largest of the first vocab_size numbers of each row of logits
// (float32, rows row_stride apart), the lowest where several are equal; -1 where one is NaN or the
// largest is infinite.
int32_t argmax(const float* logits, int64_t num_rows, int64_t vocab_size, int64_t row_stride,
               int32_t* ids, Stream stream);

}  // namespace pinfer::cuda
