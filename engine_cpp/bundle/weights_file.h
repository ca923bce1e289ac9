// The weights of a bundle: a safetensors file, mapped; tensors are used where they lie.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "core/status.h"

namespace pinfer {

struct WeightTensor {
  const void* data = nullptr;  // 64-byte aligned, read-only, valid as long as the file
  int32_t dtype = -1;          // torch's ScalarType code
  std::vector<int64_t> shape;
};

// Immutable after open; may be read from any thread.
class WeightsFile {
 public:
  // DATA_LOSS naming the file and the tensor if header and size do not agree, if tensors overlap,
  // leave holes or are not aligned.
  static Result<std::unique_ptr<WeightsFile>> open(std::unique_ptr<MappedFile> file);

  // nullptr if there is no such tensor.
  const WeightTensor* find(const std::string& name) const;

  // The same tensors where a copy of the whole file lies, in the memory of a device.
  std::unique_ptr<WeightsFile> at(const void* copy) const;

  const std::string& path() const { return path_; }
  // Empty of one made by at().
  std::span<const std::byte> bytes() const {
    return file_ == nullptr ? std::span<const std::byte>() : file_->bytes();
  }

 private:
  explicit WeightsFile(std::string path) : path_(std::move(path)) {}
  Status read_header();

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::map<std::string, WeightTensor, std::less<>> tensors_;
};

}  // namespace pinfer
