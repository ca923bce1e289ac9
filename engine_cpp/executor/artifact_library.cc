#include "executor/artifact_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "core/mapped_file.h"

namespace pinfer {
namespace {

struct Binding {
  const ShimProvider* provider = nullptr;
  int num_users = 0;
};

// Guards the objects' tables too.
std::mutex& mutex() {
  static std::mutex guard;
  return guard;
}

// By the linker's handle: who has bound the object.
std::map<void*, Binding>& bindings() {
  static std::map<void*, Binding> all;
  return all;
}

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<ArtifactLibrary>> ArtifactLibrary::open(const BundleFiles& files,
                                                               const std::string& name,
                                                               const ShimProvider& provider) {
  // The destructor takes the lock too.
  std::unique_ptr<ArtifactLibrary> library(new ArtifactLibrary());
  const std::lock_guard<std::mutex> lock(mutex());
  PINFER_RETURN_IF_ERROR(library->load(files, name, provider));
  PINFER_RETURN_IF_ERROR(library->bind(files.name_of(name), provider));
  return library;
}

ArtifactLibrary::~ArtifactLibrary() {
  const std::lock_guard<std::mutex> lock(mutex());
  if (is_bound_ && --bindings()[handle_].num_users == 0) bindings().erase(handle_);
  if (handle_ != nullptr) ::dlclose(handle_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void* ArtifactLibrary::find(const char* name) const { return ::dlsym(handle_, name); }

Status ArtifactLibrary::load(const BundleFiles& files, const std::string& name,
                             const ShimProvider& provider) {
  PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, files.map(name));
  if (files.is_archive()) return load_copy(*file);
  const std::string& path = file->path();
  handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    return Status::failed_precondition(path + ": cannot load: " + ::dlerror());
  }
  const auto bound = bindings().find(handle_);
  if (bound == bindings().end() || bound->second.provider == &provider) return Status();
  ::dlclose(handle_);
  handle_ = nullptr;
  return load_copy(*file);
}

Status ArtifactLibrary::load_copy(const MappedFile& file) {
  descriptor_ = ::memfd_create("pinfer_artifact", MFD_CLOEXEC);
  if (descriptor_ < 0 || !write_all(descriptor_, file.bytes())) {
    return Status::resource_exhausted(file.path() +
                                      ": cannot be copied into memory: " + std::strerror(errno));
  }
  const std::string name = "/proc/self/fd/" + std::to_string(descriptor_);
  handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    return Status::failed_precondition(file.path() + ": cannot load a copy: " + ::dlerror());
  }
  return Status();
}

Status ArtifactLibrary::bind(const std::string& path, const ShimProvider& provider) {
  const auto* name = static_cast<const char*>(find("pinfer_artifact_names"));
  const auto bind_table = reinterpret_cast<void (*)(void**)>(find("pinfer_artifact_bind"));
  if (name == nullptr || bind_table == nullptr) {
    return Status::data_loss(path + ": not an artifact (pinfer_artifact_bind is missing)");
  }
  std::vector<void*> table;
  for (; *name != '\0'; name += std::strlen(name) + 1) {
    void* function = provider.find(name);
    if (function == nullptr) {
      return Status::failed_precondition(path + ": needs " + name + ", which provider " +
                                         std::string(provider.name()) + " does not have");
    }
    table.push_back(function);
    symbols_.emplace_back(name);
  }
  Binding& binding = bindings()[handle_];
  if (binding.num_users++ == 0) bind_table(table.data());
  binding.provider = &provider;
  is_bound_ = true;
  return Status();
}

}  // namespace pinfer
