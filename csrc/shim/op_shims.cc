#include "csrc/shim/op_shims.h"

#include "csrc/kernels/quantized_weight.h"
#include "csrc/ops_error.h"

namespace pinfer {

bool DenseTensor::read(const TensorFunctions& functions, AtenTensorHandle tensor) {
  int64_t* tensor_sizes = nullptr;
  int64_t* strides = nullptr;
  if (tensor == nullptr || functions.get_data_ptr(tensor, &data) != 0 ||
      functions.get_dim(tensor, &ndim) != 0 || functions.get_sizes(tensor, &tensor_sizes) != 0 ||
      functions.get_strides(tensor, &strides) != 0 || functions.get_dtype(tensor, &dtype) != 0) {
    return false;
  }
  sizes = tensor_sizes;
  int64_t dense = 1;
  for (int64_t i = ndim - 1; i >= 0; --i) {
    if (sizes[i] != 1 && strides[i] != dense) return false;
    dense *= sizes[i];
  }
  return true;
}

int64_t int4_group_size(const DenseTensor& weight) {
  return weight.is(AOTI_DTYPE_UINT8, 3) ? (weight.sizes[2] - kByteRow) / Int4Layout::kNumbersPerRow
                                        : 0;
}

bool fits_linear(const DenseTensor& weight, int64_t in_features, int64_t out_features) {
  if (weight.ndim < 3 || weight.sizes[0] != (out_features + kPanelWidth - 1) / kPanelWidth) {
    return false;
  }
  if (weight.is(AOTI_DTYPE_FLOAT32, 3)) return weight.sizes[1] == in_features;
  if (weight.is(AOTI_DTYPE_BFLOAT16, 4)) return weight.sizes[1] == (in_features + 1) / 2;
  if (weight.is(AOTI_DTYPE_INT8, 3)) {
    return weight.sizes[1] == Int8Layout::blocks(in_features) &&
           weight.sizes[2] == Int8Layout::kBlockBytes;
  }
  const int64_t group_size = int4_group_size(weight);
  return group_size >= 32 && weight.sizes[1] == Int4Layout::blocks(in_features, group_size) &&
         weight.sizes[2] == Int4Layout::block_bytes(group_size);
}

AOTITorchError refuse_tensors(const char* op, const char* reason) {
  return ops_error(PINFER_OPS_INVALID_ARGUMENT, "%s: %s", op, reason);
}

DenseTensor first_expert(const DenseTensor& stacked) {
  if (stacked.ndim == 0) return {};
  return {stacked.data, stacked.ndim - 1, stacked.sizes + 1, stacked.dtype};
}

const char* check_moe_tensors(const std::array<DenseTensor, 4>& tensors,
                              int64_t intermediate_size) {
  const auto& [x, router_logits, gate_up, down] = tensors;
  if (!x.is(AOTI_DTYPE_FLOAT32, 2) || !router_logits.is(AOTI_DTYPE_FLOAT32, 2) ||
      router_logits.sizes[0] != x.sizes[0]) {
    return "x and router_logits must be float32 [T, hidden] and [T, experts]";
  }
  const DenseTensor gate_up_of_one = first_expert(gate_up), down_of_one = first_expert(down);
  if (!fits_linear(gate_up_of_one, x.sizes[1], 2 * intermediate_size) ||
      !fits_linear(down_of_one, intermediate_size, x.sizes[1]) ||
      gate_up.sizes[0] != router_logits.sizes[1] || down.sizes[0] != router_logits.sizes[1]) {
    return "the packed weights do not fit x, router_logits and intermediate_size";
  }
  if (gate_up.dtype != down.dtype ||
      int4_group_size(gate_up_of_one) != int4_group_size(down_of_one)) {
    return "gate_up_weight and down_weight must have one format";
  }
  return nullptr;
}

const char* check_attention_tensors(const std::array<DenseTensor, 9>& tensors) {
  const auto& [q, k, v, k_cache, v_cache, slots, table, lens, starts] = tensors;
  if (!q.is(AOTI_DTYPE_FLOAT32, 3) || !k.is(AOTI_DTYPE_FLOAT32, 3) ||
      !v.is(AOTI_DTYPE_FLOAT32, 3)) {
    return "q, k and v must be float32 [T, heads, head_dim]";
  }
  if (k.sizes[0] != q.sizes[0] || v.sizes[0] != q.sizes[0] || k.sizes[1] != v.sizes[1] ||
      k.sizes[2] != q.sizes[2] || v.sizes[2] != q.sizes[2]) {
    return "shapes of q, k and v do not fit each other";
  }
  const int64_t width =
      k_cache.dtype == AOTI_DTYPE_INT8 ? int8_token_bytes(k.sizes[2]) : k.sizes[2];
  if (k_cache.ndim != 4 || v_cache.ndim != 4 || k_cache.dtype != v_cache.dtype ||
      k_cache.sizes[0] != v_cache.sizes[0] || k_cache.sizes[1] != k.sizes[1] ||
      v_cache.sizes[1] != k.sizes[1] || k_cache.sizes[2] != width || v_cache.sizes[3] != width ||
      k_cache.sizes[3] != v_cache.sizes[2]) {
    return "the caches must be [blocks, kv_heads, head_dim, block_size] and [blocks, kv_heads, "
           "block_size, head_dim], with 4 more than head_dim in int8";
  }
  if (!slots.is(AOTI_DTYPE_INT64, 1) || slots.sizes[0] != q.sizes[0]) {
    return "slot_mapping must be int64 [T]";
  }
  if (!table.is(AOTI_DTYPE_INT32, 2) || !lens.is(AOTI_DTYPE_INT32, 1) ||
      !starts.is(AOTI_DTYPE_INT32, 1) || table.sizes[0] != lens.sizes[0] ||
      starts.sizes[0] != lens.sizes[0] + 1) {
    return "block_table, seq_lens and query_start_loc must be int32 [S, M], [S] and [S + 1]";
  }
  return nullptr;
}

}  // namespace pinfer
