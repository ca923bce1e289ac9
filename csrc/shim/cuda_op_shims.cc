#include "csrc/shim/cuda_op_shims.h"

#include "csrc/ops_error.h"
#include "csrc/shim/cuda_memory.h"

namespace pinfer {
namespace {

using cuda::Weight;

constexpr int64_t kPartAlignment = 64;  // bytes, of the parts of a quantised weight
// Up to this many rows of one request attention divides contexts; beyond, tiles of rows.
constexpr int64_t kMaxSplitRows = 4;

int64_t aligned(int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

int64_t padded(int32_t format, int64_t in_features) {
  const int64_t step = format == PINFER_INT4 ? 128 : format == PINFER_FLOAT8_E4M3 ? 64 : 32;
  return (in_features + step - 1) / step * step;
}

int64_t number_bytes(int32_t format, int64_t out_features, int64_t in_features) {
  const int64_t numbers = out_features * padded(format, in_features);
  return format == PINFER_INT4 ? numbers / 2 : format == PINFER_FLOAT8_E4M3 ? numbers : numbers * 2;
}

// Bytes of an int4 weight's scales, and of its minima.
int64_t group_bytes(int64_t group_size, int64_t out_features, int64_t in_features) {
  return out_features * cuda::num_weight_groups(in_features, group_size) * 2;
}

int64_t bytes_of(const Tensor& tensor) {
  int64_t count = item_size(tensor.dtype);
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= tensor.sizes[i];
  return count;
}

bool is(AtenTensorHandle tensor, int32_t dtype, int32_t ndim) {
  return tensor != nullptr && tensor->dtype == dtype && tensor->ndim == ndim;
}

bool is_dense(const Tensor& tensor, int32_t from = 0) {
  int64_t dense = 1;
  for (int32_t i = tensor.ndim; i-- > from;) {
    if (tensor.sizes[i] != 1 && tensor.strides[i] != dense) return false;
    dense *= tensor.sizes[i];
  }
  return true;
}

// float32 [T, heads, head_dim], each row dense; rows may lie apart.
bool is_rows(AtenTensorHandle tensor) {
  return is(tensor, AOTI_DTYPE_FLOAT32, 3) && is_dense(*tensor, 1);
}

AOTITorchError refuse(const char* op, const char* reason) {
  return ops_error(PINFER_OPS_INVALID_ARGUMENT, "%s: %s", op, reason);
}

AOTITorchError from_kernel(const CudaDevice& device, int32_t error) {
  return error == 0 ? 0 : ops_error(error, "%s", device.kernels().last_error());
}

// A buffer that is given back at the end of its life; work that uses it may still be queued.
class Scratch {
 public:
  Scratch(CudaDevice* device, size_t bytes)
      : device_(device), data_(bytes == 0 ? nullptr : device->take_buffer(bytes)) {}
  ~Scratch() { device_->give_buffer(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  CudaDevice* device_;
  void* data_;
};

AOTITorchError empty(const int64_t* sizes, int64_t ndim, AtenTensorHandle* result) {
  int64_t strides[kMaxDims];
  int64_t stride = 1;
  for (int64_t i = ndim; i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return DeviceTensors::empty_strided(ndim, sizes, strides, AOTI_DTYPE_FLOAT32, AOTI_DEVICE_CUDA, 0,
                                      result);
}

AOTITorchError finish(AOTITorchError error, AtenTensorHandle* result) {
  if (error != 0) DeviceTensors::delete_tensor_object(*result);
  return error;
}

int32_t multiply(CudaDevice* device, const void* x, int64_t num_tokens, const Weight& weight,
                 void* out) {
  const cuda::KernelTable& kernels = device->kernels();
  if (num_tokens <= cuda::kMaxLinearRows) {
    return from_kernel(*device, kernels.multiply_few_rows(x, PINFER_FLOAT32, num_tokens, weight,
                                                          out, PINFER_FLOAT32, device->stream()));
  }
  cuda::DenseMatmul* matmul = device->matmul();
  if (matmul == nullptr) return PINFER_OPS_DEVICE_ERROR;
  const size_t bytes = kernels.multiply_rows_workspace_bytes(PINFER_FLOAT32, num_tokens, weight);
  const Scratch workspace(device, bytes);
  if (bytes > 0 && workspace.data() == nullptr) return PINFER_OPS_OUT_OF_MEMORY;
  return from_kernel(
      *device, kernels.multiply_rows(*matmul, x, PINFER_FLOAT32, num_tokens, weight, out,
                                     PINFER_FLOAT32, workspace.data(), bytes, device->stream()));
}

AOTITorchError row_linear(AtenTensorHandle x, AtenTensorHandle weight, int64_t format,
                          int64_t group_size, int64_t out_features, AtenTensorHandle* result) {
  const char* op = "row_linear";
  CudaDevice* device = CudaDevice::current();
  if (!is(x, AOTI_DTYPE_FLOAT32, 2) || !is_dense(*x)) {
    return refuse(op, "x must be dense float32 [T, K]");
  }
  const auto code = static_cast<int32_t>(format);
  const int64_t in_features = x->sizes[1];
  if (weight == nullptr || !is_dense(*weight) ||
      bytes_of(*weight) != cuda_weight_bytes(code, group_size, out_features, in_features)) {
    return refuse(op, "the packed weight does not fit x, its format and out_features");
  }
  const int64_t sizes[2] = {x->sizes[0], out_features};
  if (const AOTITorchError error = empty(sizes, 2, result)) return error;
  return finish(multiply(device, x->data, x->sizes[0],
                         cuda_weight(weight->data, code, group_size, out_features, in_features),
                         (*result)->data),
                result);
}

int32_t attend(CudaDevice* device, const cuda::AttentionTask& task) {
  const cuda::KernelTable& kernels = device->kernels();
  const CudaStep& step = device->step;
  if (step.max_rows > kMaxSplitRows) {
    return from_kernel(*device, kernels.attend_prefill(task, device->stream()));
  }
  const size_t bytes = kernels.attention_workspace_bytes(
      task.num_tokens, task.num_heads, task.cache.head_dim, step.max_seq_len, step.split_size);
  const Scratch workspace(device, bytes);
  if (bytes > 0 && workspace.data() == nullptr) return PINFER_OPS_OUT_OF_MEMORY;
  return from_kernel(*device,
                     kernels.attend_split(task, step.max_rows, step.max_seq_len, step.split_size,
                                          workspace.data(), bytes, device->stream()));
}

AOTITorchError rotary_attention(AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v,
                                AtenTensorHandle cos, AtenTensorHandle sin,
                                AtenTensorHandle k_cache, AtenTensorHandle v_cache,
                                AtenTensorHandle slots, AtenTensorHandle table,
                                AtenTensorHandle lens, AtenTensorHandle starts, int64_t rotary_dim,
                                double scale, int64_t sliding_window, double logit_softcap,
                                AtenTensorHandle* result) {
  const char* op = "rotary_attention";
  CudaDevice* device = CudaDevice::current();
  if (!is_rows(q) || !is_rows(k) || !is_rows(v) || k->sizes[0] != q->sizes[0] ||
      v->sizes[0] != q->sizes[0] || k->sizes[1] != v->sizes[1] || k->sizes[2] != q->sizes[2] ||
      v->sizes[2] != q->sizes[2]) {
    return refuse(op, "q, k and v must be float32 [T, heads, head_dim] that fit each other");
  }
  const int64_t num_tokens = q->sizes[0], num_heads = q->sizes[1], head_dim = q->sizes[2];
  for (const AtenTensorHandle table_of : {cos, sin}) {
    if (!is(table_of, AOTI_DTYPE_FLOAT32, 2) || !is_dense(*table_of) ||
        table_of->sizes[0] != num_tokens ||
        (rotary_dim != 0 && table_of->sizes[1] != rotary_dim / 2)) {
      return refuse(op, "cos and sin must be float32 [T, rotary_dim / 2]");
    }
  }
  for (const AtenTensorHandle cache : {k_cache, v_cache}) {
    if (cache == nullptr || cache->ndim != 4 || !is_dense(*cache) ||
        cache->dtype != k_cache->dtype || cache->sizes[0] != k_cache->sizes[0] ||
        cache->sizes[1] != k->sizes[1] || cache->sizes[2] != k_cache->sizes[2] ||
        cache->sizes[3] != cuda::padded_head_dim(head_dim)) {
      return refuse(op, "the caches must be [blocks, kv_heads, block_size, padded head_dim]");
    }
  }
  if (!is(slots, AOTI_DTYPE_INT64, 1) || slots->sizes[0] != num_tokens ||
      !is(table, AOTI_DTYPE_INT32, 2) || !is_dense(*table) || !is(lens, AOTI_DTYPE_INT32, 1) ||
      !is(starts, AOTI_DTYPE_INT32, 1) || table->sizes[0] != lens->sizes[0] ||
      starts->sizes[0] != lens->sizes[0] + 1) {
    return refuse(op,
                  "slot_mapping, block_table, seq_lens and query_start_loc must be int64 [T] and "
                  "int32 [S, M], [S] and [S + 1]");
  }
  if (const AOTITorchError error = empty(q->sizes, 3, result)) return error;
  const Scratch rotated(device, static_cast<size_t>(num_tokens * num_heads * head_dim) * 4);
  if (num_tokens > 0 && rotated.data() == nullptr) {
    return finish(PINFER_OPS_OUT_OF_MEMORY, result);
  }
  // Bytes are float8: Triton refuses tensors of that dtype for some architectures.
  const int32_t dtype = k_cache->dtype == AOTI_DTYPE_UINT8 ? PINFER_FLOAT8_E4M3 : k_cache->dtype;
  cuda::KVCache cache = {k_cache->data,     v_cache->data,        dtype,
                         k_cache->sizes[0], k_cache->sizes[2],    k_cache->sizes[1],
                         head_dim,          device->step.k_scale, device->step.v_scale};
  const cuda::RotaryCacheTask write = {q->data,
                                       k->data,
                                       v->data,
                                       q->strides[0],
                                       k->strides[0],
                                       v->strides[0],
                                       PINFER_FLOAT32,
                                       reinterpret_cast<const float*>(cos->data),
                                       reinterpret_cast<const float*>(sin->data),
                                       rotary_dim,
                                       rotated.data(),
                                       reinterpret_cast<const int64_t*>(slots->data),
                                       cache,
                                       num_tokens,
                                       num_heads};
  if (const int32_t error = device->kernels().write_rotary_cache(write, device->stream())) {
    return finish(from_kernel(*device, error), result);
  }
  const cuda::AttentionTask task = {rotated.data(),
                                    (*result)->data,
                                    PINFER_FLOAT32,
                                    cache,
                                    reinterpret_cast<const int32_t*>(table->data),
                                    reinterpret_cast<const int32_t*>(lens->data),
                                    reinterpret_cast<const int32_t*>(starts->data),
                                    num_tokens,
                                    lens->sizes[0],
                                    num_heads,
                                    table->sizes[1],
                                    static_cast<float>(scale),
                                    static_cast<int32_t>(sliding_window),
                                    static_cast<float>(logit_softcap)};
  return finish(attend(device, task), result);
}

}  // namespace

cuda::Weight cuda_weight(const void* data, int32_t format, int64_t group_size, int64_t out_features,
                         int64_t in_features) {
  const auto* bytes = static_cast<const char*>(data);
  Weight weight{data, format, out_features, in_features, nullptr, nullptr, group_size};
  if (format != PINFER_INT4 && format != PINFER_FLOAT8_E4M3) return weight;
  const char* scales = bytes + aligned(number_bytes(format, out_features, in_features));
  weight.scales = scales;
  if (format == PINFER_INT4) {
    weight.minima = scales + aligned(group_bytes(group_size, out_features, in_features));
  }
  return weight;
}

int64_t cuda_weight_bytes(int32_t format, int64_t group_size, int64_t out_features,
                          int64_t in_features) {
  const int64_t numbers = number_bytes(format, out_features, in_features);
  switch (format) {
    case PINFER_BFLOAT16:
    case PINFER_FLOAT16:
      return numbers;
    case PINFER_FLOAT8_E4M3:
      return aligned(numbers) + aligned(out_features * 4);
    case PINFER_INT4:
      if (group_size < 32) return 0;
      return aligned(numbers) + 2 * aligned(group_bytes(group_size, out_features, in_features));
    default:
      return 0;
  }
}

void* find_cuda_op_shim(std::string_view symbol) {
  if (symbol == "aoti_torch_cuda_row_linear") return reinterpret_cast<void*>(&row_linear);
  if (symbol == "aoti_torch_cuda_rotary_attention") {
    return reinterpret_cast<void*>(&rotary_attention);
  }
  return nullptr;
}

}  // namespace pinfer
