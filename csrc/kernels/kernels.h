// The kernels behind the ops: one table per instruction set, filled by the files that are compiled
// for it. Kernels take raw pointers, check nothing and start no threads: csrc/*.cc does both.
#pragma once

#include <cstdint>

#include "csrc/kernels/cpu_features.h"

namespace pinfer {

// Weights are packed in panels of this many outputs, cache tiles in groups of as many tokens.
inline constexpr int64_t kPanelWidth = 16;

// ---- linear ----

// out[rows, n] = x[rows, k] * weight^T. A row's result does not depend on how rows and panels are
// divided over calls: each output is one sum in ascending order of k (of integers, where weights
// are quantised: quantized_weight.h has their layouts).
struct LinearTask {
  const void* x;  // rows prepared by LinearKernel::prepare, x_stride bytes apart
  int64_t x_stride;
  int64_t k;
  const void* weight;  // packed panels
  int64_t n;           // outputs; the last panel may be partly filled
  float* out;
  int64_t out_stride;      // floats between rows
  int64_t group_size = 0;  // of int4
};

struct LinearKernel {
  // Bytes of a prepared row of k numbers. Both are null where x is used as it is.
  int64_t (*prepared_row_size)(int64_t k, int64_t group_size);
  void (*prepare)(const float* x, int64_t k, int64_t group_size, void* prepared_row);
  void (*multiply)(const LinearTask& task, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                   int64_t panel_end);
};

// ---- mixture of experts ----

// What experts need beside linear layers, row by row.
struct MoeKernel {
  // Of n >= 1 logits. If one of them is NaN, or the largest is infinite, all results are NaN.
  void (*softmax)(const float* logits, int64_t n, float* out);
  // out = activation(gate) * up, by PINFER_SILU, ... `out` may be `gate`.
  void (*gate[3])(const float* gate, const float* up, int64_t n, float* out);
  // sum += weight * row.
  void (*accumulate)(float weight, const float* row, int64_t n, float* sum);
};

// ---- paged attention ----

// Context is processed in partitions of this many tokens, each with its own softmax, merged in
// ascending order: also by a row alone, so that any division of the work gives the same bits.
inline constexpr int64_t kPartitionSize = 256;

inline constexpr int64_t kMaxHeadDim = 256;

// Rows (query, head) of one call; they share the K and V tiles of one kv head.
inline constexpr int kMaxAttentionRows = 24;

struct AttentionTask {
  const void* k_cache;         // [num_blocks, num_kv_heads, block_size / 16, K tile]
  const void* v_cache;         // [num_blocks, num_kv_heads, block_size / 16, V tile]
  const int32_t* block_table;  // of the request
  int64_t block_size;
  int64_t num_kv_heads;
  int64_t kv_head;
  int64_t head_dim;
  float scale;
  float logit_softcap;  // 0: off
  int num_rows;
  const float* q[kMaxAttentionRows];  // rows of head_dim
  int64_t begin[kMaxAttentionRows];   // attended positions: [begin, end), not empty
  int64_t end[kMaxAttentionRows];
};

// Bytes that the K or V of a token takes in a cache of int8: its numbers and a float32 scale.
inline constexpr int64_t int8_token_bytes(int64_t head_dim) { return head_dim + 4; }

// A row's softmax so far: state[0] = maximum, state[1] = sum, state[kStateHeader ...] = weighted
// sum of values. A sum of 0 means that nothing has been attended.
inline constexpr int64_t kStateHeader = 16;
inline constexpr int64_t attention_state_size(int64_t head_dim) {
  return kStateHeader + (head_dim + 15) / 16 * 16;
}

struct AttentionKernel {
  // Writes the K and V rows [head_dim] of one token and kv head at an offset in a block.
  void (*write)(const float* k, const float* v, int64_t head_dim, int64_t offset, void* k_block,
                void* v_block);
  // states [num_rows, attention_state_size]: the partitions [partition_begin, partition_end),
  // merged.
  void (*attend)(const AttentionTask& task, int64_t partition_begin, int64_t partition_end,
                 float* states);
  // state = state merged with a later one.
  void (*merge)(const float* later, int64_t head_dim, float* state);
  void (*finish)(const float* state, int64_t head_dim, float* out);
};

// ---- tables ----

struct KernelTable {
  Isa isa;
  const LinearKernel* linear_float32;
  const LinearKernel* linear_bfloat16;
  const LinearKernel* linear_int8;
  const LinearKernel* linear_int4;
  const AttentionKernel* attention_float32;
  const AttentionKernel* attention_bfloat16;
  const AttentionKernel* attention_int8;
  const MoeKernel* moe;
};

// The table of a path. REQUIRES is_supported(isa).
const KernelTable& kernel_table(Isa isa);

// The table of select_isa().
const KernelTable& kernels();

extern const LinearKernel kLinearInt8Portable, kLinearInt4Portable;
extern const LinearKernel kLinearInt8Avx2, kLinearInt4Avx2;
extern const LinearKernel kLinearInt8Avx2Vnni, kLinearInt4Avx2Vnni;
extern const LinearKernel kLinearInt8Avx512, kLinearInt4Avx512;
extern const LinearKernel kLinearInt8Avx512Vnni, kLinearInt4Avx512Vnni;
extern const LinearKernel kLinearFloat32Portable, kLinearBFloat16Portable;
extern const AttentionKernel kAttentionFloat32Portable, kAttentionBFloat16Portable,
    kAttentionInt8Portable;
extern const LinearKernel kLinearFloat32Avx2, kLinearBFloat16Avx2;
extern const AttentionKernel kAttentionFloat32Avx2, kAttentionBFloat16Avx2, kAttentionInt8Avx2;
extern const LinearKernel kLinearFloat32Avx512, kLinearBFloat16Avx512;
extern const AttentionKernel kAttentionFloat32Avx512, kAttentionBFloat16Avx512,
    kAttentionInt8Avx512;
extern const LinearKernel kLinearBFloat16Avx512Bf16;
extern const AttentionKernel kAttentionBFloat16Avx512Bf16;
extern const MoeKernel kMoePortable, kMoeAvx2, kMoeAvx512;

}  // namespace pinfer
