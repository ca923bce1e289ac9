#include "csrc/shim/cuda_driver.h"

#include <dlfcn.h>

namespace pinfer {

std::unique_ptr<CudaDriver> CudaDriver::open(const std::string& library, std::string* error) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    *error = "no CUDA driver: " + std::string(reason == nullptr ? library.c_str() : reason);
    return nullptr;
  }
  auto driver = std::make_unique<CudaDriver>();
  const char* missing = nullptr;
  const auto find = [&](auto& member, const char* name) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(::dlsym(handle, name));
    if (member == nullptr && missing == nullptr) missing = name;
  };
#define PINFER_FIND(member, name, parameters) find(driver->member, name);
  PINFER_CUDA_DRIVER_FUNCTIONS(PINFER_FIND)
#undef PINFER_FIND
  ::dlclose(handle);  // not unloaded: RTLD_NODELETE
  if (missing != nullptr) {
    *error = library + ": the CUDA driver has no " + missing + "; a newer driver is needed";
    return nullptr;
  }
  return driver;
}

std::string CudaDriver::describe(int32_t error) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(error, &name) != kCudaSuccess || name == nullptr) name = "unknown error";
  if (error_text(error, &text) != kCudaSuccess || text == nullptr) text = "";
  std::string described = std::string(name) + " (" + std::to_string(error) + ")";
  return *text == '\0' ? described : described + ": " + text;
}

}  // namespace pinfer
