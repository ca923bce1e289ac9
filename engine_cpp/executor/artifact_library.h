// The shared object of an artifact in this process, its host functions bound to one provider.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bundle/bundle_files.h"
#include "core/status.h"
#include "csrc/shim/provider.h"

namespace pinfer {

// The dynamic linker opens a file once, and the object has one table of host functions. So engines
// of one provider share it; where another provider holds it already, or where the file lies in an
// archive, a private copy in memory is opened.
// Immutable; closes the object at the end of its life.
class ArtifactLibrary {
 public:
  // FAILED_PRECONDITION naming the file, and the symbol that the provider does not have; DATA_LOSS
  // if the file is no artifact. Any thread.
  static Result<std::unique_ptr<ArtifactLibrary>> open(const BundleFiles& files,
                                                       const std::string& name,
                                                       const ShimProvider& provider);
  ~ArtifactLibrary();
  ArtifactLibrary(const ArtifactLibrary&) = delete;
  ArtifactLibrary& operator=(const ArtifactLibrary&) = delete;

  // The names that it takes from its host, in table order.
  const std::vector<std::string>& symbols() const { return symbols_; }

  // nullptr if the object exports no such name.
  void* find(const char* name) const;

 private:
  ArtifactLibrary() = default;
  Status load(const BundleFiles& files, const std::string& name, const ShimProvider& provider);
  Status load_copy(const MappedFile& file);
  Status bind(const std::string& path, const ShimProvider& provider);

  void* handle_ = nullptr;
  int descriptor_ = -1;  // of a private copy; kept open, for the linker knows the object by it
  bool is_bound_ = false;
  std::vector<std::string> symbols_;
};

}  // namespace pinfer
