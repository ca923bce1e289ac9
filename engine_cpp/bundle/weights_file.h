// The weights of a bundle: a safetensors file, mapped; tensors are used where they lie.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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

  const std::string& path() const { return file_->path(); }
  size_t size() const { return file_->bytes().size(); }
  const MappedFile& file() const { return *file_; }

 private:
  explicit WeightsFile(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  Status read_header();

  std::unique_ptr<MappedFile> file_;
  std::map<std::string, WeightTensor, std::less<>> tensors_;
};

}  // namespace pinfer
