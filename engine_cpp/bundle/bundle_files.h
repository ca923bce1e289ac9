// Where the files of a bundle are: in a directory, or in an archive at the end of one file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "bundle/archive.h"
#include "core/mapped_file.h"
#include "core/status.h"

namespace pinfer {

// Immutable after open; any thread.
class BundleFiles {
 public:
  // NOT_FOUND if `path` is neither; DATA_LOSS if the archive is damaged.
  static Result<BundleFiles> open(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_archive() const { return archive_ != nullptr; }
  // What messages call a file; its path, if the bundle is a directory.
  std::string name_of(const std::string& file) const;
  // NOT_FOUND if there is none; DATA_LOSS if it is not a regular file.
  Result<int64_t> size(const std::string& file) const;
  Result<std::unique_ptr<MappedFile>> map(const std::string& file) const;

 private:
  explicit BundleFiles(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::shared_ptr<const MappedFile> archive_;  // the whole file; nullptr for a directory
  std::map<std::string, ArchiveEntry> entries_;
};

}  // namespace pinfer
