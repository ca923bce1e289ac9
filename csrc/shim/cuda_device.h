// A GPU as this process uses it: the driver's context, one stream, memory, loaded kernels.
//
// Errors are codes of csrc/ops.h with the reason, with numbers, in pinfer_ops_last_error().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "csrc/kernels/kernel_table_cuda.h"
#include "csrc/shim/cuda_arena.h"
#include "csrc/shim/cuda_driver.h"

namespace pinfer {

struct CudaDeviceOptions {
  std::string driver = "libcuda.so.1";
  // The library of our kernels; empty: beside this program or library, in its lib, on the system.
  std::string kernels;
  int ordinal = 0;
};

// What a kernel of the running step must know and the host alone does. Set before a step's parts
// run.
struct CudaStep {
  int64_t max_rows = 1;     // of one request
  int64_t max_seq_len = 0;  // of one request, after the step
  int64_t split_size = 0;   // of decode attention
  // Of the running layer: what numbers of its cache are multiplied by.
  float k_scale = 1, v_scale = 1;
};

// One at a time in a process, since what artifacts call carries no device. Used by one thread at a
// time, except for give_buffer().
class CudaDevice {
 public:
  // Null, and why, if there is no driver, no such device, or a library that does not fit.
  static std::shared_ptr<CudaDevice> open(const CudaDeviceOptions& options, std::string* error);
  // The open one; nullptr if there is none.
  static CudaDevice* current();
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  const cuda::KernelTable& kernels() const { return *kernels_; }
  CudaHandle stream() const { return stream_; }
  int32_t arch() const { return arch_; }  // compute capability * 10
  int32_t num_processors() const { return num_processors_; }
  const std::string& name() const { return name_; }

  // Makes the calling thread use this device. Before anything else on a thread.
  int32_t make_current();

  // Device memory; `what` is named where there is none. Freed by free().
  int32_t allocate(size_t bytes, const char* what, void** memory);
  void free(void* memory);
  // Memory of the host that copies of the stream can read and write while others run.
  int32_t allocate_pinned(size_t bytes, void** memory);
  void free_pinned(void* memory);
  int32_t memory_info(size_t* free_bytes, size_t* total_bytes);

  // An intermediate buffer; nullptr if memory is out.
  void* take_buffer(size_t bytes) { return arena_->take(bytes); }
  void give_buffer(void* buffer) { arena_->give(buffer); }
  const CudaArena& arena() const { return *arena_; }

  // In the stream's order.
  int32_t copy_to_device(void* to, const void* from, size_t bytes);
  int32_t copy_to_host(void* to, const void* from, size_t bytes);
  int32_t copy_on_device(void* to, const void* from, size_t bytes);
  int32_t clear(void* memory, size_t bytes);
  int32_t synchronize();

  // Modules are shared: the layers of a model all ask for the same few.
  int32_t load_module(const void* image, CudaHandle* module);
  int32_t unload_module(CudaHandle module);

  // For products of many rows; opened by the first call. nullptr, with the reason, without
  // cuBLASLt.
  cuda::DenseMatmul* matmul();

  CudaStep step;

  // ops_error() of what the driver has answered, unless it is success.
  int32_t check(int32_t result, const char* what);

 private:
  struct Module {
    CudaHandle handle;
    int num_users;
  };

  CudaDevice() = default;
  std::string find_device(int ordinal);
  std::string open_kernels(const std::string& path);

  std::unique_ptr<CudaDriver> driver_;
  const cuda::KernelTable* kernels_ = nullptr;
  int ordinal_ = 0, device_ = 0;
  std::string name_;
  int32_t arch_ = 0, num_processors_ = 0;
  CudaHandle context_ = nullptr, stream_ = nullptr;
  std::unique_ptr<CudaArena> arena_;
  std::map<const void*, Module> modules_;  // by image
  cuda::DenseMatmul* matmul_ = nullptr;
};

}  // namespace pinfer
