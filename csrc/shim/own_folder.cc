#include "csrc/shim/own_folder.h"

#include <dlfcn.h>

namespace pinfer {

std::filesystem::path own_folder() {
  namespace fs = std::filesystem;
  static const char anchor = 0;
  std::error_code error;
  Dl_info info{};
  fs::path path;
  if (::dladdr(&anchor, &info) != 0 && info.dli_fname != nullptr) {
    path = fs::canonical(info.dli_fname, error);
  }
  // For a program that was found through PATH, dli_fname is its bare name.
  if (path.empty() || error) path = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : path.parent_path();
}

}  // namespace pinfer
