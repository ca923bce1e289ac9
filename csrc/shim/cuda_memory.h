// Tensor handles over the device's intermediate buffers.
#pragma once

#include "csrc/shim/cuda_device.h"
#include "csrc/shim/native_tensor.h"

namespace pinfer {

struct DeviceMemory {
  static constexpr int32_t kDeviceType = AOTI_DEVICE_CUDA;
  static void* allocate(size_t bytes) {
    CudaDevice* device = CudaDevice::current();
    return device == nullptr ? nullptr : device->take_buffer(bytes);
  }
  static void free(void* memory) {
    if (CudaDevice* device = CudaDevice::current()) device->give_buffer(memory);
  }
  static bool copy(void* to, const void* from, size_t bytes) {
    CudaDevice* device = CudaDevice::current();
    return device != nullptr && device->copy_on_device(to, from, bytes) == 0;
  }
};

using DeviceTensors = NativeTensors<DeviceMemory>;

}  // namespace pinfer
