// Test data in the kernels' number formats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "csrc/ops.h"

namespace pinfer::cuda {

inline size_t dtype_bytes(int32_t dtype) {
  return dtype == PINFER_FLOAT32 ? 4 : dtype == PINFER_FLOAT8_E4M3 ? 1 : 2;
}

inline const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case PINFER_FLOAT32:
      return "float32";
    case PINFER_BFLOAT16:
      return "bfloat16";
    case PINFER_FLOAT16:
      return "float16";
    case PINFER_FLOAT8_E4M3:
      return "float8";
    default:
      return "int4";
  }
}

// What memory is for the kernels: aligned, and of exactly this size, so that AddressSanitizer sees
// the first byte beyond. Begins as NaN.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  DeviceTensor(int64_t count, int32_t dtype)
      : count_(count),
        dtype_(dtype),
        bytes_(static_cast<size_t>(count) * dtype_bytes(dtype)),
        data_(static_cast<unsigned char*>(::operator new(bytes_, std::align_val_t{256}))) {
    std::memset(data_.get(), 0xff, bytes_);
  }
  DeviceTensor(const std::vector<float>& values, int32_t dtype)
      : DeviceTensor(static_cast<int64_t>(values.size()), dtype) {
    for (int64_t i = 0; i < count_; ++i) set(i, values[static_cast<size_t>(i)]);
  }

  void* data() const { return data_.get(); }
  int32_t dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  size_t bytes() const { return bytes_; }

  float operator[](int64_t i) const {
    switch (dtype_) {
      case PINFER_FLOAT32:
        return at<float>(i);
      case PINFER_BFLOAT16:
        return __bfloat162float(at<__nv_bfloat16>(i));
      case PINFER_FLOAT16:
        return __half2float(at<__half>(i));
      default:
        return static_cast<float>(at<__nv_fp8_e4m3>(i));
    }
  }

  void set(int64_t i, float x) {
    switch (dtype_) {
      case PINFER_FLOAT32:
        at<float>(i) = x;
        break;
      case PINFER_BFLOAT16:
        at<__nv_bfloat16>(i) = __nv_bfloat16(x);
        break;
      case PINFER_FLOAT16:
        at<__half>(i) = __half(x);
        break;
      default:
        at<__nv_fp8_e4m3>(i) = __nv_fp8_e4m3(x);
    }
  }

 private:
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete(p, std::align_val_t{256}); }
  };
  template <class T>
  T& at(int64_t i) const {
    return reinterpret_cast<T*>(data_.get())[i];
  }

  int64_t count_ = 0;
  int32_t dtype_ = 0;
  size_t bytes_ = 0;
  std::unique_ptr<unsigned char, Free> data_;
};

// A float as this dtype keeps it.
inline float rounded(float x, int32_t dtype) {
  return DeviceTensor(std::vector<float>{x}, dtype)[0];
}

}  // namespace pinfer::cuda
