// Rotary embedding of q and k, and the write of k and v into the paged cache, in one launch.
#include "csrc/kernels/checks_cuda.h"
#include "csrc/kernels/number_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr unsigned kThreads = 256;

__device__ __forceinline__ void store_cache(void* cache, int64_t i, int32_t dtype, float x) {
  if (dtype == PINFER_FLOAT8_E4M3) {
    static_cast<Float8*>(cache)[i] = from_float<Float8>(x);
  } else {
    store_float(cache, i, dtype, x);
  }
}

// Element d of a head: rotated if it is among the first rotary_dim.
template <class T>
__device__ __forceinline__ float rotated(const T* head, int d, int rotary_dim, const float* cos,
                                         const float* sin) {
  const float x = to_float(head[d]);
  if (d >= rotary_dim) return x;
  const int half = rotary_dim / 2;
  if (d < half) return x * cos[d] - to_float(head[d + half]) * sin[d];
  return x * cos[d - half] + to_float(head[d - half]) * sin[d - half];
}

// A block does one token: all heads of q, k and v.
template <class T>
__global__ void __launch_bounds__(kThreads, 4) rotary_cache_kernel(const RotaryCacheTask a) {
  const int64_t token = blockIdx.x;
  const KVCache& cache = a.cache;
  const int head_dim = static_cast<int>(cache.head_dim);
  const int padded = static_cast<int>(padded_head_dim(head_dim));
  const int rotary_dim = static_cast<int>(a.rotary_dim);
  const float* cos = rotary_dim > 0 ? a.cos + token * (rotary_dim / 2) : nullptr;
  const float* sin = rotary_dim > 0 ? a.sin + token * (rotary_dim / 2) : nullptr;

  if (a.q_out != nullptr) {
    const T* q = static_cast<const T*>(a.q) + token * a.q_stride;
    T* out = static_cast<T*>(a.q_out) + token * a.num_heads * head_dim;
    const int size = static_cast<int>(a.num_heads) * head_dim;
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
      const int d = i % head_dim;
      out[i] = from_float<T>(rotated(q + (i - d), d, rotary_dim, cos, sin));
    }
  }

  const int64_t slot = a.slot_mapping[token];
  if (slot < 0) return;
  const T* k = static_cast<const T*>(a.k) + token * a.k_stride;
  const T* v = static_cast<const T*>(a.v) + token * a.v_stride;
  const int num_kv_heads = static_cast<int>(cache.num_kv_heads);
  const int64_t block = slot / cache.block_size, offset = slot % cache.block_size;
  for (int i = static_cast<int>(threadIdx.x); i < num_kv_heads * padded; i += kThreads) {
    const int head = i / padded, d = i % padded;
    const int64_t at = ((block * num_kv_heads + head) * cache.block_size + offset) * padded + d;
    float k_number = 0, v_number = 0;
    if (d < head_dim) {
      k_number = rotated(k + head * head_dim, d, rotary_dim, cos, sin) / cache.k_scale;
      v_number = to_float(v[head * head_dim + d]) / cache.v_scale;
    }
    store_cache(cache.k, at, cache.dtype, k_number);
    store_cache(cache.v, at, cache.dtype, v_number);
  }
}

}  // namespace

int32_t write_rotary_cache(const RotaryCacheTask& task, Stream stream) {
  const char* op = "write_rotary_cache";
  if (const int32_t error = check_cache(op, task.cache)) return error;
  if (const int32_t error = check_activation(op, "q, k and v", task.dtype)) return error;
  const int64_t head_dim = task.cache.head_dim;
  PINFER_OPS_CHECK(task.num_tokens >= 0 && task.num_heads >= 0,
                   "%s: num_tokens and num_heads must be at least 0, got %lld and %lld", op,
                   number(task.num_tokens), number(task.num_heads));
  PINFER_OPS_CHECK(task.num_heads <= 1 << 16 && task.cache.num_kv_heads <= 1 << 16,
                   "%s: %lld and %lld heads are too many", op, number(task.num_heads),
                   number(task.cache.num_kv_heads));
  PINFER_OPS_CHECK(task.rotary_dim >= 0 && task.rotary_dim <= head_dim && task.rotary_dim % 2 == 0,
                   "%s: rotary_dim must be even and 0 to head_dim %lld, got %lld", op,
                   number(head_dim), number(task.rotary_dim));
  PINFER_OPS_CHECK((task.q_out == nullptr || task.q_stride >= task.num_heads * head_dim) &&
                       task.k_stride >= task.cache.num_kv_heads * head_dim &&
                       task.v_stride >= task.cache.num_kv_heads * head_dim,
                   "%s: strides of q, k and v must hold all heads, got %lld, %lld and %lld", op,
                   number(task.q_stride), number(task.k_stride), number(task.v_stride));
  if (task.num_tokens == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK((task.q != nullptr || task.q_out == nullptr) && task.k != nullptr &&
                       task.v != nullptr && task.slot_mapping != nullptr &&
                       (task.rotary_dim == 0 || (task.cos != nullptr && task.sin != nullptr)),
                   "%s: tensors must not be null", op);
  PINFER_OPS_CHECK(task.q_out == nullptr || task.q_out != task.q, "%s: q_out must not be q", op);
  const dim3 grid(static_cast<unsigned>(task.num_tokens));
  switch (task.dtype) {
    case PINFER_FLOAT32:
      return launch(op, &rotary_cache_kernel<float>, grid, kThreads, 0, stream, task);
    case PINFER_BFLOAT16:
      return launch(op, &rotary_cache_kernel<BFloat16>, grid, kThreads, 0, stream, task);
    default:
      return launch(op, &rotary_cache_kernel<Float16>, grid, kThreads, 0, stream, task);
  }
}

}  // namespace pinfer::cuda
