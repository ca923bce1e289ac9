// A file, or a part of one, mapped read-only into memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/status.h"

namespace pinfer {

// Immutable and shareable between threads. The mapping stays valid when the file is renamed or
// replaced by rename; a file that is truncated in place under it is not survivable (SIGBUS), which
// is why bundles are only ever replaced as whole directories.
class MappedFile {
 public:
  // NOT_FOUND or DATA_LOSS naming the file. An empty file gives an empty span.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  // `size` bytes of `whole` from `offset`, which stays mapped; messages call them `path`.
  // REQUIRES that they lie in it.
  static std::unique_ptr<MappedFile> part(std::shared_ptr<const MappedFile> whole, size_t offset,
                                          size_t size, std::string path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_;
  size_t size_;
  std::shared_ptr<const MappedFile> whole_;  // whose mapping this is a part of; or it has its own
};

}  // namespace pinfer
