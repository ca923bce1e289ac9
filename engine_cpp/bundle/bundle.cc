#include "bundle/bundle.h"

#include <algorithm>
#include <string_view>

#include "bundle/cpu_target.h"
#include "core/mapped_file.h"
#include "core/sha256.h"

namespace pinfer {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kManifestHash = "manifest.sha256";

std::string hash_of(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  Sha256 hash;
  if (!bytes.empty()) hash.update(bytes.data(), bytes.size());
  return to_hex(hash.finish());
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Hashing these would cost more than the rest of the start.
bool is_large(const std::string& name) {
  return name == "weights.safetensors" || name == "tokenizer.bin" || name == "tokenizer.json";
}

std::string join(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

}  // namespace

Result<std::unique_ptr<Bundle>> Bundle::open(const std::string& path, VerifyLevel level) {
  PINFER_ASSIGN_OR_RETURN(BundleFiles files, BundleFiles::open(path));
  PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> text, files.map(kManifest));
  PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> hash, files.map(kManifestHash));
  if (text_of(*hash) != hash_of(*text)) {
    return Status::data_loss(text->path() + ": does not match " + hash->path() +
                             "; one of them is damaged");
  }
  PINFER_ASSIGN_OR_RETURN(Manifest manifest, Manifest::parse(text_of(*text), text->path()));
  std::unique_ptr<Bundle> bundle(new Bundle(std::move(files), std::move(manifest)));
  PINFER_RETURN_IF_ERROR(bundle->check_files(level));
  return bundle;
}

// What the parts need must be listed: only listed files are checked.
Status Bundle::check_listed() const {
  std::vector<std::string> needed;
  if (manifest_.has_text) needed.emplace_back("tokenizer.bin");
  if (manifest_.has_model) {
    needed.emplace_back("weights.safetensors");
    for (const auto& [name, artifact] : manifest_.artifacts) needed.push_back(artifact.file);
  }
  for (const std::string& name : needed) {
    if (!has_file(name)) {
      return Status::data_loss(files_.name_of(kManifest) + ": files does not list " + name);
    }
  }
  return Status();
}

Status Bundle::check_files(VerifyLevel level) const {
  PINFER_RETURN_IF_ERROR(check_listed());
  for (const auto& [name, entry] : manifest_.files) {
    PINFER_ASSIGN_OR_RETURN(const int64_t size, files_.size(name));
    if (size != entry.size) {
      return Status::data_loss(files_.name_of(name) + ": expected " + std::to_string(entry.size) +
                               " bytes, found " + std::to_string(size));
    }
    if (level != VerifyLevel::EVERYTHING && is_large(name)) continue;
    PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> mapped, files_.map(name));
    const std::string found = hash_of(*mapped);
    if (found != entry.sha256) {
      return Status::data_loss(mapped->path() + ": expected SHA-256 " + entry.sha256 + ", found " +
                               found);
    }
  }
  return Status();
}

Status Bundle::check_runnable(const std::string& provider) const {
  if (!manifest_.has_model) {
    return Status::failed_precondition(path() + ": the bundle holds no model (only text)");
  }
  if (manifest_.device != "cpu" && manifest_.device != "cuda") {
    return Status::failed_precondition(path() + ": compiled for device " + manifest_.device +
                                       ", this engine has cpu and cuda");
  }
  const std::vector<std::string> missing = missing_cpu_features(manifest_.cpu_features);
  if (!missing.empty()) {
    return Status::failed_precondition(path() + ": compiled for " + manifest_.cpu_isa +
                                       "; this processor lacks " + join(missing) +
                                       "; export again with another --cpu-isa");
  }
  const std::vector<std::string>& providers = manifest_.providers;
  if (std::find(providers.begin(), providers.end(), provider) == providers.end()) {
    return Status::failed_precondition(path() + ": provider " + provider +
                                       " cannot serve this bundle (it can be served by " +
                                       join(providers) + ")");
  }
  return Status();
}

}  // namespace pinfer
