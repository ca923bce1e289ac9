// The custom ops as compiled artifacts call them: tensor handles in, a new handle out. Checks that
// the handles hold what the C functions of csrc/ops.h are told, then calls those.
//
// A provider is a type with `static const TensorFunctions& functions()`; the shims are made once
// for each, since an artifact's call carries nothing that says whose handles it passes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "csrc/ops.h"
#include "csrc/shim/provider.h"

namespace pinfer {

// A tensor as the ops want it: dense, with its address. Read through a provider's functions.
struct DenseTensor {
  void* data = nullptr;
  int64_t ndim = 0;
  const int64_t* sizes = nullptr;
  int32_t dtype = -1;

  // False for a null handle, or strides that are not dense row-major.
  bool read(const TensorFunctions& functions, AtenTensorHandle tensor);
  bool is(int32_t wanted_dtype, int64_t wanted_ndim) const {
    return dtype == wanted_dtype && ndim == wanted_ndim;
  }
};

// Records why an op refused its tensors; returned by pinfer_ops_last_error(). Returns 1.
// Of a packed int4 weight; 0 for another.
int64_t int4_group_size(const DenseTensor& weight);

// Whether a packed weight has the shape for so many inputs and outputs.
bool fits_linear(const DenseTensor& weight, int64_t in_features, int64_t out_features);

AOTITorchError refuse_tensors(const char* op, const char* reason);

// One expert's weight of a stack of them; without dimensions if it is none.
DenseTensor first_expert(const DenseTensor& stacked);

// nullptr, or what is wrong with dtypes and shapes of moe's tensors, in its order.
const char* check_moe_tensors(const std::array<DenseTensor, 4>& tensors, int64_t intermediate_size);

// nullptr, or what is wrong with dtypes and shapes of paged_attention's tensors, in its order.
const char* check_attention_tensors(const std::array<DenseTensor, 9>& tensors);

template <typename Provider>
struct OpShims {
  static AOTITorchError empty(const int64_t* sizes, int64_t ndim, AtenTensorHandle* out,
                              void** data) {
    const TensorFunctions& functions = Provider::functions();
    int64_t strides[4];
    int64_t stride = 1;
    for (int64_t i = ndim - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= sizes[i];
    }
    const AOTITorchError error =
        functions.empty_strided(ndim, sizes, strides, AOTI_DTYPE_FLOAT32, AOTI_DEVICE_CPU, 0, out);
    return error != 0 ? error : functions.get_data_ptr(*out, data);
  }

  static AOTITorchError linear(AtenTensorHandle x_handle, AtenTensorHandle weight_handle,
                               int64_t out_features, AtenTensorHandle* result) {
    const TensorFunctions& functions = Provider::functions();
    DenseTensor x, weight;
    if (!x.read(functions, x_handle) || !weight.read(functions, weight_handle)) {
      return refuse_tensors("linear", "tensors must be dense");
    }
    if (!x.is(AOTI_DTYPE_FLOAT32, 2)) return refuse_tensors("linear", "x must be float32 [T, K]");
    if (!fits_linear(weight, x.sizes[1], out_features)) {
      return refuse_tensors("linear", "the packed weight does not fit x and out_features");
    }
    const int64_t sizes[2] = {x.sizes[0], out_features};
    void* out = nullptr;
    if (AOTITorchError error = empty(sizes, 2, result, &out)) return error;
    return finish(pinfer_linear(static_cast<const float*>(x.data), x.sizes[0], x.sizes[1],
                                weight.data, weight.dtype, int4_group_size(weight), out_features,
                                static_cast<float*>(out)),
                  result);
  }

  static AOTITorchError moe(AtenTensorHandle x_handle, AtenTensorHandle router_logits_handle,
                            AtenTensorHandle gate_up_weight_handle,
                            AtenTensorHandle down_weight_handle, int64_t intermediate_size,
                            int64_t experts_per_token, int32_t normalize, int64_t activation,
                            AtenTensorHandle* result) {
    const std::array<AtenTensorHandle, 4> handles = {x_handle, router_logits_handle,
                                                     gate_up_weight_handle, down_weight_handle};
    std::array<DenseTensor, 4> tensors;
    for (size_t i = 0; i < handles.size(); ++i) {
      if (!tensors[i].read(Provider::functions(), handles[i])) {
        return refuse_tensors("moe", "tensors must be dense");
      }
    }
    const auto& [x, router_logits, gate_up, down] = tensors;
    if (const char* reason = check_moe_tensors(tensors, intermediate_size)) {
      return refuse_tensors("moe", reason);
    }
    void* out = nullptr;
    if (AOTITorchError error = empty(x.sizes, 2, result, &out)) return error;
    return finish(
        pinfer_moe(static_cast<const float*>(x.data), static_cast<const float*>(router_logits.data),
                   gate_up.data, down.data, gate_up.dtype, int4_group_size(first_expert(gate_up)),
                   x.sizes[0], x.sizes[1], intermediate_size, router_logits.sizes[1],
                   experts_per_token, normalize, static_cast<int32_t>(activation),
                   static_cast<float*>(out)),
        result);
  }

  static AOTITorchError paged_attention(
      AtenTensorHandle q_handle, AtenTensorHandle k_handle, AtenTensorHandle v_handle,
      AtenTensorHandle k_cache_handle, AtenTensorHandle v_cache_handle,
      AtenTensorHandle slot_mapping_handle, AtenTensorHandle block_table_handle,
      AtenTensorHandle seq_lens_handle, AtenTensorHandle query_start_loc_handle, double scale,
      int64_t sliding_window, double logit_softcap, AtenTensorHandle* result) {
    const std::array<AtenTensorHandle, 9> handles = {
        q_handle,           k_handle,        v_handle,
        k_cache_handle,     v_cache_handle,  slot_mapping_handle,
        block_table_handle, seq_lens_handle, query_start_loc_handle};
    std::array<DenseTensor, 9> tensors;
    for (size_t i = 0; i < handles.size(); ++i) {
      if (!tensors[i].read(Provider::functions(), handles[i])) {
        return refuse_tensors("paged_attention", "tensors must be dense");
      }
    }
    const auto& [q, k, v, k_cache, v_cache, slots, table, lens, starts] = tensors;
    if (const char* reason = check_attention_tensors(tensors)) {
      return refuse_tensors("paged_attention", reason);
    }
    void* out = nullptr;
    if (AOTITorchError error = empty(q.sizes, 3, result, &out)) return error;
    return finish(
        pinfer_paged_attention(
            static_cast<const float*>(q.data), static_cast<const float*>(k.data),
            static_cast<const float*>(v.data), k_cache.data, v_cache.data, k_cache.dtype,
            static_cast<const int64_t*>(slots.data), static_cast<const int32_t*>(table.data),
            static_cast<const int32_t*>(lens.data), static_cast<const int32_t*>(starts.data), scale,
            static_cast<int32_t>(sliding_window), logit_softcap, q.sizes[0], lens.sizes[0],
            q.sizes[1], k.sizes[1], q.sizes[2], v_cache.sizes[0], v_cache.sizes[2], table.sizes[1],
            static_cast<float*>(out)),
        result);
  }

 private:
  static AOTITorchError finish(int32_t error, AtenTensorHandle* result) {
    if (error != 0) Provider::functions().delete_tensor_object(*result);
    return error;
  }
};

// The shim of a custom op by the name that artifacts bind; nullptr if there is no such op.
template <typename Provider>
void* find_op_shim(std::string_view symbol) {
  if (symbol == "aoti_torch_cpu_linear") {
    return reinterpret_cast<void*>(&OpShims<Provider>::linear);
  }
  if (symbol == "aoti_torch_cpu_moe") return reinterpret_cast<void*>(&OpShims<Provider>::moe);
  if (symbol == "aoti_torch_cpu_paged_attention") {
    return reinterpret_cast<void*>(&OpShims<Provider>::paged_attention);
  }
  return nullptr;
}

}  // namespace pinfer
