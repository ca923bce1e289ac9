// A bundle on disk: its manifest and its files, checked.
#pragma once

#include <memory>
#include <string>

#include "bundle/bundle_files.h"
#include "bundle/manifest.h"
#include "core/status.h"

namespace pinfer {

enum class VerifyLevel {
  SIZES_AND_CODE,  // sizes of all files, hashes of all but the large ones (weights, tokenizer)
  EVERYTHING,      // the hash of every file
};

// Immutable after open.
class Bundle {
 public:
  // Reads the manifest, compares it with its hash, and checks the files. NOT_FOUND, DATA_LOSS or
  // FAILED_PRECONDITION naming the file, what was expected and what was found.
  static Result<std::unique_ptr<Bundle>> open(const std::string& path, VerifyLevel level);

  // FAILED_PRECONDITION if this machine or this provider cannot run the bundle's model.
  Status check_runnable(const std::string& provider) const;

  const std::string& path() const { return files_.path(); }
  const BundleFiles& files() const { return files_; }
  const Manifest& manifest() const { return manifest_; }
  bool has_file(const std::string& name) const { return manifest_.files.contains(name); }

 private:
  Bundle(BundleFiles files, Manifest manifest)
      : files_(std::move(files)), manifest_(std::move(manifest)) {}
  Status check_listed() const;
  Status check_files(VerifyLevel level) const;

  BundleFiles files_;
  Manifest manifest_;
};

}  // namespace pinfer
