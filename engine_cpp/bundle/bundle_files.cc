#include "bundle/bundle_files.h"

#include <sys/stat.h>

namespace pinfer {

Result<BundleFiles> BundleFiles::open(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return Status::not_found(path + ": no such bundle");
  BundleFiles files(path);
  if (S_ISDIR(info.st_mode)) {
    if (::stat((path + "/config.json").c_str(), &info) == 0 &&
        ::stat((path + "/manifest.json").c_str(), &info) != 0) {
      return Status::not_found(path + ": not a bundle: a model, which pinfer-export makes one of");
    }
    return files;
  }
  if (!S_ISREG(info.st_mode)) return Status::not_found(path + ": not a bundle");
  PINFER_ASSIGN_OR_RETURN(files.archive_, MappedFile::open(path));
  Result<std::map<std::string, ArchiveEntry>> entries = read_archive(files.archive_->bytes(), path);
  if (entries.status().code() == StatusCode::NOT_FOUND) {
    return Status::not_found(path + ": not a bundle: expected a directory, or a file that" +
                             " pinfer-export --standalone wrote, whole");
  }
  PINFER_ASSIGN_OR_RETURN(files.entries_, std::move(entries));
  return files;
}

std::string BundleFiles::name_of(const std::string& file) const {
  return path_ + (is_archive() ? ":" : "/") + file;
}

Result<int64_t> BundleFiles::size(const std::string& file) const {
  if (is_archive()) {
    const auto entry = entries_.find(file);
    if (entry == entries_.end()) return Status::not_found(name_of(file) + ": file not found");
    return static_cast<int64_t>(entry->second.size);
  }
  struct stat info{};
  if (::stat(name_of(file).c_str(), &info) != 0) {
    return Status::not_found(name_of(file) + ": file not found");
  }
  if (!S_ISREG(info.st_mode)) return Status::data_loss(name_of(file) + ": not a regular file");
  return static_cast<int64_t>(info.st_size);
}

Result<std::unique_ptr<MappedFile>> BundleFiles::map(const std::string& file) const {
  if (!is_archive()) return MappedFile::open(name_of(file));
  const auto entry = entries_.find(file);
  if (entry == entries_.end()) return Status::not_found(name_of(file) + ": file not found");
  return MappedFile::part(archive_, entry->second.offset, entry->second.size, name_of(file));
}

}  // namespace pinfer
