#include "executor/part_inputs.h"

#include <algorithm>
#include <string>

#include "core/aligned_vector.h"

namespace pinfer {
namespace {

std::string list_text(const int64_t* values, int64_t count) {
  std::string text = "[";
  for (int64_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + "]";
}

// Whether the sizes are those of `type`, where -1 is free.
bool sizes_fit(const TensorType& type, const int64_t* sizes) {
  for (size_t i = 0; i < type.shape.size(); ++i) {
    if (type.shape[i] >= 0 ? sizes[i] != type.shape[i] : sizes[i] < 0) return false;
  }
  return true;
}

// The stride of a dimension with one element, or of a tensor with none, is never used.
bool is_dense(const int64_t* sizes, const int64_t* strides, int64_t rank) {
  if (std::find(sizes, sizes + rank, 0) != sizes + rank) return true;
  int64_t stride = 1;
  for (int64_t i = rank; i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return true;
}

// What is wrong with the input; "" if nothing.
std::string find_fault(const TensorType& type, AtenTensorHandle input,
                       const TensorFunctions& functions) {
  if (input == nullptr) return "expected a tensor, found none";
  int32_t dtype = -1;
  int64_t rank = -1, *sizes = nullptr, *strides = nullptr;
  void* data = nullptr;
  if (functions.get_dtype(input, &dtype) != 0 || functions.get_dim(input, &rank) != 0 ||
      functions.get_sizes(input, &sizes) != 0 || functions.get_strides(input, &strides) != 0 ||
      functions.get_data_ptr(input, &data) != 0) {
    return "the provider cannot describe it";
  }
  if (dtype != type.dtype) {
    return "expected " + std::string(dtype_name(type.dtype)) + ", found " +
           std::string(dtype_name(dtype));
  }
  if (rank != static_cast<int64_t>(type.shape.size()) || !sizes_fit(type, sizes)) {
    return "expected shape " +
           list_text(type.shape.data(), static_cast<int64_t>(type.shape.size())) +
           " (-1: any), found " + list_text(sizes, rank);
  }
  if (!is_dense(sizes, strides, rank)) {
    return "expected dense strides of shape " + list_text(sizes, rank) + ", found " +
           list_text(strides, rank);
  }
  const size_t offset = reinterpret_cast<uintptr_t>(data) % kTensorAlignment;
  if (offset != 0) {
    return "expected an address that is a multiple of " + std::to_string(kTensorAlignment) +
           ", found one " + std::to_string(offset) + " bytes past it";
  }
  return "";
}

}  // namespace

Status check_part_inputs(const ArtifactEntry& entry, std::span<const AtenTensorHandle> inputs,
                         const TensorFunctions& functions) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string fault = find_fault(entry.inputs[i], inputs[i], functions);
    if (!fault.empty()) {
      return Status::internal(entry.name + ": input " + entry.inputs[i].name + ": " + fault);
    }
  }
  return Status();
}

}  // namespace pinfer
