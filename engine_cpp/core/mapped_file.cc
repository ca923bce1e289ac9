#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pinfer {

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    if (error == ENOENT) return Status::not_found(path + ": file not found");
    return Status::failed_precondition(path + ": cannot open: " + std::strerror(error));
  }
  struct stat info{};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(descriptor);
    return Status::data_loss(path + ": not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  const int error = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) {
    return Status::failed_precondition(path + ": cannot map: " + std::strerror(error));
  }
  return std::unique_ptr<MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), size));
}

std::unique_ptr<MappedFile> MappedFile::part(std::shared_ptr<const MappedFile> whole, size_t offset,
                                             size_t size, std::string path) {
  const std::byte* data = whole->bytes().subspan(offset, size).data();
  std::unique_ptr<MappedFile> part(new MappedFile(std::move(path), data, size));
  part->whole_ = std::move(whole);
  return part;
}

MappedFile::~MappedFile() {
  if (size_ > 0 && whole_ == nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace pinfer
