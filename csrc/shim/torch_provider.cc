// The torch provider: libtorch's own implementation of its C shim, opened at run time. Every ATen
// operator that Inductor falls back to is there; the custom ops, OpenMP's entry points and the
// vector functions stay ours, so that results equal the native provider's.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "csrc/shim/handle_recorder.h"
#include "csrc/shim/op_shims.h"
#include "csrc/shim/own_folder.h"
#include "csrc/shim/provider.h"
#include "csrc/threads/openmp.h"
#include "csrc/vector_math/vector_math.h"

namespace pinfer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtorch_cpu.so";
constexpr const char* kVariable = "PINFER_TORCH_LIB";

// PREFIX/bin/pinfer and PREFIX/lib/python3.N/site-packages/pinfer/lib/libpinfer.so belong to an
// environment that may hold torch.
std::vector<fs::path> candidates() {
  if (const char* named = std::getenv(kVariable); named != nullptr && *named != '\0') {
    std::error_code error;
    const fs::path path(named);
    return {fs::is_directory(path, error) ? path / kLibrary : path};
  }
  const fs::path folder = own_folder();
  std::vector<fs::path> paths = {folder.parent_path().parent_path() / "torch" / "lib" / kLibrary};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.parent_path() / "lib", error)) {
    if (entry.path().filename().string().starts_with("python3")) {
      paths.push_back(entry.path() / "site-packages" / "torch" / "lib" / kLibrary);
    }
  }
  return paths;
}

std::string joined(const std::vector<fs::path>& paths) {
  std::string text;
  for (const fs::path& path : paths) text += (text.empty() ? "" : ", ") + path.string();
  return text;
}

// "2.13" from the number that libtorch encodes its version in.
std::string version_text(uint64_t abi_version) {
  return std::to_string(abi_version >> 56) + "." + std::to_string((abi_version >> 48) & 0xff);
}

class TorchProvider final : public ShimProvider {
 public:
  // False, and why, if libtorch cannot be opened or lacks a function.
  bool open(std::string* error) {
    // A program that has loaded it already must not get a second one.
    library_ = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const bool is_named = std::getenv(kVariable) != nullptr;
    if (library_ == nullptr || is_named) {
      const std::vector<fs::path> paths = candidates();
      std::error_code missing;
      const fs::path* found = nullptr;
      for (const fs::path& path : paths) {
        if (found == nullptr && fs::exists(path, missing)) found = &path;
      }
      if (found == nullptr) {
        *error = std::string(kLibrary) + " not found: looked for " + joined(paths) + "; set " +
                 kVariable + " to the directory that holds it";
        return false;
      }
      library_ = ::dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library_ == nullptr) {
        *error = found->string() + ": cannot load: " + ::dlerror();
        return false;
      }
    }
    return find_functions(error);
  }

  std::string_view name() const override { return "torch"; }
  std::string_view torch_version() const override { return version_; }
  const TensorFunctions& tensor_functions() const override { return functions(); }

  void* find(std::string_view symbol) const override {
    if (void* op = find_op_shim<TorchProvider>(symbol)) return op;
    if (symbol == "aoti_torch_new_tensor_handle") {
      return reinterpret_cast<void*>(&HandleRecorder::new_tensor_handle<TorchProvider>);
    }
    if (void* function = find_openmp_function(symbol)) return function;
    if (void* function = find_vector_function(symbol)) return function;
    if (!symbol.starts_with("aoti_torch_")) return nullptr;
    return ::dlsym(library_, std::string(symbol).c_str());
  }

  static const TensorFunctions& functions() { return functions_; }

 private:
  bool find_functions(std::string* error) {
    const auto find = [&](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library_, symbol));
      if (function == nullptr && error->empty()) {
        *error = std::string(kLibrary) + ": function " + symbol + " is missing";
      }
    };
    uint64_t (*abi_version)() = nullptr;
    find(functions_.create_tensor_from_blob, "aoti_torch_create_tensor_from_blob");
    find(functions_.empty_strided, "aoti_torch_empty_strided");
    find(functions_.new_tensor_handle, "aoti_torch_new_tensor_handle");
    find(functions_.delete_tensor_object, "aoti_torch_delete_tensor_object");
    find(functions_.get_data_ptr, "aoti_torch_get_data_ptr");
    find(functions_.get_dim, "aoti_torch_get_dim");
    find(functions_.get_sizes, "aoti_torch_get_sizes");
    find(functions_.get_strides, "aoti_torch_get_strides");
    find(functions_.get_dtype, "aoti_torch_get_dtype");
    find(abi_version, "aoti_torch_abi_version");
    if (!error->empty()) return false;
    version_ = version_text(abi_version());
    return true;
  }

  static TensorFunctions functions_;
  void* library_ = nullptr;  // stays loaded: libtorch does not survive being unloaded
  std::string version_;
};

TensorFunctions TorchProvider::functions_{};

}  // namespace

const ShimProvider* torch_provider(std::string* error) {
  static TorchProvider provider;
  static std::string failure;
  static const bool opened = provider.open(&failure);
  if (opened) return &provider;
  *error = failure;
  return nullptr;
}

}  // namespace pinfer
