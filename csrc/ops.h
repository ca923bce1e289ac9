// The ops as C functions: what compiled artifacts reach through the shim and Python through ctypes.
//
// Common to all:
// - Tensors are dense and row-major; shapes are in brackets. The caller owns all memory; nothing is
//   kept after the call. Outputs must not overlap inputs.
// - dtype codes are those of torch's ScalarType.
// - Returns 0, or an error code with the reason in pinfer_ops_last_error(). On an error nothing has
//   been written.
// - Thread-safe, as long as no two calls write the same memory. Work is divided over the calling
//   thread's current pool (csrc/threads/thread_pool.h), or the default pool of
//   pinfer_set_num_threads().
// - float32 results of a row do not depend on the other rows of the call nor on the number of
//   threads, bit for bit. bfloat16 weights and caches: the same; the row is rounded to bfloat16 (to
//   nearest even) first, products are summed in float32. int8 and int4 weights: the same; the row
//   is rounded to 8-bit integers first, with a scale for every 32 numbers. int8 caches: the
//   same; K and V are rounded when they are written, with a scale for each token and head.
#pragma once

#include <stdint.h>

#if defined(__GNUC__)
#define PINFER_API __attribute__((visibility("default")))
#else
#define PINFER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PINFER_INT4 = 0,  // torch has no such type: tensors of it are of bytes
  PINFER_INT8 = 1,
  PINFER_FLOAT16 = 5,  // CUDA only
  PINFER_FLOAT32 = 6,
  PINFER_BFLOAT16 = 15,
  PINFER_FLOAT8_E4M3 = 24,  // CUDA only
};

// Activations of pinfer_moe.
enum {
  PINFER_SILU = 0,
  PINFER_GELU = 1,       // by the error function
  PINFER_GELU_TANH = 2,  // its approximation by tanh
};

enum {
  PINFER_OPS_OK = 0,
  PINFER_OPS_INVALID_ARGUMENT = 1,
  PINFER_OPS_OUT_OF_MEMORY = 2,
  PINFER_OPS_DEVICE_ERROR = 3,  // of CUDA, or of a library of it
};

// Why the last op on this thread failed; "" if none has. Valid until the next op on this thread.
PINFER_API const char* pinfer_ops_last_error(void);

// out [num_tokens, out_features] = x [num_tokens, in_features] * weight^T.
// weight: packed, in panels of 16 outputs, padded with zeros:
//   float32   [ceil(out_features / 16), in_features, 16]
//   bfloat16  [ceil(out_features / 16), ceil(in_features / 2), 16, 2]
//   int8      [ceil(out_features / 16), ceil(in_features / 64), 1088]
//   int4      [ceil(out_features / 16), ceil(in_features / group_size), 64 + 8 * group_size]
// (csrc/kernels/quantized_weight.h has the bytes of the last two). group_size: of int4, a multiple
// of 32; else 0.
PINFER_API int32_t pinfer_linear(const float* x, int64_t num_tokens, int64_t in_features,
                                 const void* weight, int32_t weight_dtype, int64_t group_size,
                                 int64_t out_features, float* out);

// out [num_tokens, hidden_size] = rows of a table that is packed as for pinfer_linear, with
// vocab_size outputs and hidden_size inputs. Ids must be in [0, vocab_size).
PINFER_API int32_t pinfer_embedding(const int32_t* token_ids, int64_t num_tokens,
                                    const void* weight, int32_t weight_dtype, int64_t group_size,
                                    int64_t vocab_size, int64_t hidden_size, float* out);

// cos, sin [num_tokens, num_freqs] of positions [num_tokens] times inv_freq [num_freqs] (a float32
// product), times attention_scaling.
PINFER_API int32_t pinfer_rotary_embedding(const int32_t* positions, int64_t num_tokens,
                                           const float* inv_freq, int64_t num_freqs,
                                           double attention_scaling, float* cos, float* sin);

// Causal attention over a paged cache. First the K and V of all rows are written into their slots,
// then every row attends, so rows may read what other rows of the call have written.
//
//   q [num_tokens, num_heads, head_dim]; k, v [num_tokens, num_kv_heads, head_dim]
//   k_cache, v_cache   num_blocks blocks of block_size tokens, a multiple of 16:
//     V  [num_blocks, num_kv_heads, block_size, head_dim]
//     K  [num_blocks, num_kv_heads, block_size / 16, K tile], where the K tile of 16 tokens is
//        float32 [head_dim, 16], bfloat16 [head_dim / 2, 16, 2] (head_dim even)
//     int8: K and V [num_blocks, num_kv_heads, block_size / 16, tile]; a tile begins with a scale
//        for each of its tokens, float32 [16], and goes on with K [head_dim, 16] or V [16,
//        head_dim]
//   slot_mapping [num_tokens]          block_id * block_size + offset, or -1: not written. Slots of
//                                      one call must differ.
//   block_table [num_requests, max_blocks]   ids of the blocks of each request, in order
//   seq_lens [num_requests]            context length of each request after this step
//   query_start_loc [num_requests + 1] request s owns rows query_start_loc[s] ... [s + 1] - 1,
//                                      its last positions; from 0 to num_tokens
//   scale                              of the scores
//   sliding_window                     0, or how many positions a row sees, itself included
//   logit_softcap                      0, or c: scores become c * tanh(score / c)
//   out [num_tokens, num_heads, head_dim]
//
// num_heads is a multiple of num_kv_heads; head_dim is at most 256. Cache contents outside of the
// requests' contexts are never used, not even multiplied by zero.
PINFER_API int32_t pinfer_paged_attention(
    const float* q, const float* k, const float* v, void* k_cache, void* v_cache,
    int32_t cache_dtype, const int64_t* slot_mapping, const int32_t* block_table,
    const int32_t* seq_lens, const int32_t* query_start_loc, double scale, int32_t sliding_window,
    double logit_softcap, int64_t num_tokens, int64_t num_requests, int64_t num_heads,
    int64_t num_kv_heads, int64_t head_dim, int64_t num_blocks, int64_t block_size,
    int64_t max_blocks, float* out);

// A mixture of experts, each a gated MLP: every row goes to experts_per_token of num_experts, and
// out [num_tokens, hidden_size] is the sum of weight * down(activation(gate(x)) * up(x)) over
// them.
//
//   x [num_tokens, hidden_size]
//   router_logits [num_tokens, num_experts]
//   gate_up_weight   the experts' weights one after another, each packed by itself as for
//                    pinfer_linear, with 2 * intermediate_size outputs (gate, then up) and
//                    hidden_size inputs
//   down_weight      the same, with hidden_size outputs and intermediate_size inputs
//   normalize        0, or not: whether a row's weights are divided by their sum
//   activation       PINFER_SILU, ...
//
// A row's weights are the softmax of its logits over all experts, of which the largest are taken;
// where they are equal, those of the lower experts. The sum is in ascending order of experts, in
// float32. A row with a logit that is NaN (or one of +infinity) is NaN as a whole.
PINFER_API int32_t pinfer_moe(const float* x, const float* router_logits,
                              const void* gate_up_weight, const void* down_weight,
                              int32_t weight_dtype, int64_t group_size, int64_t num_tokens,
                              int64_t hidden_size, int64_t intermediate_size, int64_t num_experts,
                              int64_t experts_per_token, int32_t normalize, int32_t activation,
                              float* out);

// Gives threads without a pool of their own a default pool of num_threads threads; 0: as many as
// affinity and cgroup quota allow. Without this call they run serially. Not while an op runs.
PINFER_API int32_t pinfer_set_num_threads(int32_t num_threads);

// Threads that an op called on this thread would use.
PINFER_API int32_t pinfer_get_num_threads(void);

// The instruction set that kernels are chosen for: "portable", "avx2", "avx2_vnni", "avx512",
// "avx512_vnni", "avx512_bf16".
PINFER_API const char* pinfer_get_isa(void);

// Forces one of these, "" for the best again. For tests; not while an op runs. An error if the
// processor does not support it.
PINFER_API int32_t pinfer_force_isa(const char* name);

#ifdef __cplusplus
}  // extern "C"
#endif
