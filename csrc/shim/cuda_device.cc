#include "csrc/shim/cuda_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <utility>
#include <vector>

#include "csrc/ops_error.h"
#include "csrc/shim/cuda_images.h"
#include "csrc/shim/own_folder.h"

namespace pinfer {
namespace {

constexpr int kLeastDriverVersion = 12000;  // 12.0, as the driver counts
constexpr unsigned kNonBlockingStream = 1;

std::atomic<CudaDevice*> open_device{nullptr};

CudaAddress address(const void* memory) { return reinterpret_cast<CudaAddress>(memory); }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

double mebibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::vector<std::string> kernel_library_places(const std::string& path) {
  if (!path.empty()) return {path};
  const std::filesystem::path folder = own_folder();
  const std::string name = cuda::kKernelLibrary;
  if (folder.empty()) return {name};
  // Beside the program; in a wheel the program is in bin, the library in pinfer/lib.
  return {(folder / name).string(), (folder / ".." / "lib" / name).string(), name};
}

}  // namespace

std::shared_ptr<CudaDevice> CudaDevice::open(const CudaDeviceOptions& options, std::string* error) {
  std::shared_ptr<CudaDevice> device(new CudaDevice());
  CudaDevice* none = nullptr;
  if (!open_device.compare_exchange_strong(none, device.get())) {
    *error = "this process has a CUDA device open already: one engine for CUDA at a time";
    return nullptr;
  }
  device->driver_ = CudaDriver::open(options.driver, error);
  if (device->driver_ == nullptr) return nullptr;
  *error = device->find_device(options.ordinal);
  if (error->empty()) *error = device->open_kernels(options.kernels);
  return error->empty() ? device : nullptr;
}

CudaDevice* CudaDevice::current() { return open_device.load(); }

std::string CudaDevice::find_device(int ordinal) {
  const auto failed = [&](const char* function, int32_t result) {
    return std::string(function) + ": " + driver_->describe(result);
  };
  if (const int32_t result = driver_->init(0)) {
    return result == kCudaNoDevice ? "the CUDA driver has found no device"
                                   : failed("cuInit", result);
  }
  int version = 0, count = 0, major = 0, minor = 0, processors = 0;
  if (const int32_t result = driver_->driver_version(&version)) {
    return failed("cuDriverGetVersion", result);
  }
  if (version < kLeastDriverVersion) {
    return "the CUDA driver is version " + version_text(version) + ", at least " +
           version_text(kLeastDriverVersion) + " is needed";
  }
  if (const int32_t result = driver_->device_count(&count)) {
    return failed("cuDeviceGetCount", result);
  }
  if (count <= ordinal) {
    return count == 0
               ? "the CUDA driver has found no device"
               : "device " + std::to_string(ordinal) + ": there are " + std::to_string(count);
  }
  char name[256] = "";
  if (const int32_t result = driver_->device_get(&device_, ordinal)) {
    return failed("cuDeviceGet", result);
  }
  if (const int32_t result = driver_->device_name(name, sizeof(name), device_)) {
    return failed("cuDeviceGetName", result);
  }
  for (const auto& [attribute, value] :
       {std::pair{kCudaCapabilityMajor, &major}, std::pair{kCudaCapabilityMinor, &minor},
        std::pair{kCudaNumProcessors, &processors}}) {
    if (const int32_t result = driver_->device_attribute(value, attribute, device_)) {
      return failed("cuDeviceGetAttribute", result);
    }
  }
  name_ = name;
  ordinal_ = ordinal;
  arch_ = major * 10 + minor;
  num_processors_ = processors;
  CudaHandle context = nullptr;
  if (const int32_t result = driver_->context_retain(&context, device_)) {
    return failed("cuDevicePrimaryCtxRetain", result);
  }
  context_ = context;
  if (const int32_t result = driver_->context_set(context_)) {
    return failed("cuCtxSetCurrent", result);
  }
  if (const int32_t result = driver_->stream_create(&stream_, kNonBlockingStream)) {
    stream_ = nullptr;
    return failed("cuStreamCreate", result);
  }
  arena_ = std::make_unique<CudaArena>(
      [this](size_t bytes) -> void* {
        void* memory = nullptr;
        return allocate(bytes, "intermediate buffers", &memory) == 0 ? memory : nullptr;
      },
      [this](void* memory) { free(memory); });
  return "";
}

std::string CudaDevice::open_kernels(const std::string& path) {
  void* library = nullptr;
  std::string reasons;
  for (const std::string& place : kernel_library_places(path)) {
    library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) break;
    const char* reason = ::dlerror();
    reasons = reason == nullptr ? place : reason;
  }
  if (library == nullptr) return "the library of CUDA kernels cannot be opened: " + reasons;
  const auto table =
      reinterpret_cast<const cuda::KernelTable* (*)()>(::dlsym(library, cuda::kKernelTableSymbol));
  ::dlclose(library);
  const int32_t version = table == nullptr ? 0 : table()->version;
  if (version != cuda::kKernelTableVersion) {
    return std::string(cuda::kKernelLibrary) + ": expected version " +
           std::to_string(cuda::kKernelTableVersion) + ", found " + std::to_string(version);
  }
  kernels_ = table();
  return "";
}

CudaDevice::~CudaDevice() {
  if (context_ != nullptr) {
    driver_->context_set(context_);
    if (stream_ != nullptr) driver_->stream_synchronize(stream_);
    if (matmul_ != nullptr) kernels_->close_matmul(matmul_);
    for (const auto& [image, module] : modules_) driver_->module_unload(module.handle);
    arena_.reset();
    if (stream_ != nullptr) driver_->stream_destroy(stream_);
    driver_->context_set(nullptr);
    driver_->context_release(device_);
  }
  CudaDevice* self = this;
  open_device.compare_exchange_strong(self, nullptr);
}

int32_t CudaDevice::check(int32_t result, const char* what) {
  if (result == kCudaSuccess) return PINFER_OPS_OK;
  return ops_error(result == kCudaOutOfMemory ? PINFER_OPS_OUT_OF_MEMORY : PINFER_OPS_DEVICE_ERROR,
                   "%s: %s", what, driver_->describe(result).c_str());
}

int32_t CudaDevice::make_current() {
  return check(driver_->context_set(context_), "cuCtxSetCurrent");
}

int32_t CudaDevice::allocate(size_t bytes, const char* what, void** memory) {
  CudaAddress found = 0;
  const int32_t result = driver_->memory_alloc(&found, std::max<size_t>(bytes, 1));
  if (result == kCudaSuccess) {
    *memory = reinterpret_cast<void*>(found);
    return PINFER_OPS_OK;
  }
  if (result != kCudaOutOfMemory) return check(result, "cuMemAlloc");
  size_t free_bytes = 0, total_bytes = 0;
  driver_->memory_info(&free_bytes, &total_bytes);
  return ops_error(PINFER_OPS_OUT_OF_MEMORY,
                   "out of device memory: %s take %.1f MiB, %.1f of %.1f MiB are free on %s", what,
                   mebibytes(bytes), mebibytes(free_bytes), mebibytes(total_bytes), name_.c_str());
}

void CudaDevice::free(void* memory) {
  if (memory != nullptr) driver_->memory_free(address(memory));
}

int32_t CudaDevice::allocate_pinned(size_t bytes, void** memory) {
  const int32_t result = driver_->host_alloc(memory, std::max<size_t>(bytes, 1), 0);
  if (result != kCudaOutOfMemory) return check(result, "cuMemHostAlloc");
  return ops_error(PINFER_OPS_OUT_OF_MEMORY, "out of pinned host memory: %.1f MiB for staging",
                   mebibytes(bytes));
}

void CudaDevice::free_pinned(void* memory) {
  if (memory != nullptr) driver_->host_free(memory);
}

int32_t CudaDevice::memory_info(size_t* free_bytes, size_t* total_bytes) {
  return check(driver_->memory_info(free_bytes, total_bytes), "cuMemGetInfo");
}

int32_t CudaDevice::copy_to_device(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return PINFER_OPS_OK;
  return check(driver_->copy_to_device(address(to), from, bytes, stream_), "cuMemcpyHtoDAsync");
}

int32_t CudaDevice::copy_to_host(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return PINFER_OPS_OK;
  return check(driver_->copy_to_host(to, address(from), bytes, stream_), "cuMemcpyDtoHAsync");
}

int32_t CudaDevice::copy_on_device(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return PINFER_OPS_OK;
  return check(driver_->copy_on_device(address(to), address(from), bytes, stream_),
               "cuMemcpyDtoDAsync");
}

int32_t CudaDevice::clear(void* memory, size_t bytes) {
  if (bytes == 0) return PINFER_OPS_OK;
  return check(driver_->memory_set(address(memory), 0, bytes, stream_), "cuMemsetD8Async");
}

int32_t CudaDevice::synchronize() {
  return check(driver_->stream_synchronize(stream_), "cuStreamSynchronize");
}

int32_t CudaDevice::load_module(const void* image, CudaHandle* module) {
  const auto found = modules_.find(image);
  if (found != modules_.end()) {
    ++found->second.num_users;
    *module = found->second.handle;
    return PINFER_OPS_OK;
  }
  std::string error;
  const void* code = choose_cuda_image(image, arch_, &error);
  if (code == nullptr) return ops_error(PINFER_OPS_DEVICE_ERROR, "%s", error.c_str());
  if (const int32_t failed = check(driver_->module_load(module, code), "cuModuleLoadData")) {
    return failed;
  }
  modules_.emplace(image, Module{*module, 1});
  return PINFER_OPS_OK;
}

int32_t CudaDevice::unload_module(CudaHandle module) {
  const auto found = std::find_if(modules_.begin(), modules_.end(),
                                  [&](const auto& entry) { return entry.second.handle == module; });
  if (found == modules_.end()) {
    return ops_error(PINFER_OPS_INVALID_ARGUMENT, "a module that is not loaded");
  }
  if (--found->second.num_users > 0) return PINFER_OPS_OK;
  modules_.erase(found);
  return check(driver_->module_unload(module), "cuModuleUnload");
}

cuda::DenseMatmul* CudaDevice::matmul() {
  if (matmul_ == nullptr) {
    matmul_ = kernels_->open_matmul();
    if (matmul_ == nullptr) {
      ops_error(PINFER_OPS_DEVICE_ERROR, "more than %lld rows need cuBLASLt: %s",
                static_cast<long long>(cuda::kMaxLinearRows), kernels_->last_error());
    }
  }
  return matmul_;
}

}  // namespace pinfer
