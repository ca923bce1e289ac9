#include "bundle/weights_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bundle/manifest.h"
#include "csrc/shim/aoti.h"

namespace pinfer {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

int32_t code_of(const std::string& name) {
  if (name == "F32") return AOTI_DTYPE_FLOAT32;
  if (name == "BF16") return AOTI_DTYPE_BFLOAT16;
  if (name == "I8") return AOTI_DTYPE_INT8;
  if (name == "U8") return AOTI_DTYPE_UINT8;
  if (name == "F16") return AOTI_DTYPE_FLOAT16;
  return -1;
}

// A header entry: [begin, end) in the data part. False unless every number fits the others.
bool read_entry(const Json& entry, WeightTensor* tensor, uint64_t* begin, uint64_t* end) {
  if (!entry.is_object()) return false;
  const auto dtype = entry.find("dtype"), shape = entry.find("shape"),
             offsets = entry.find("data_offsets");
  if (dtype == entry.end() || shape == entry.end() || offsets == entry.end() ||
      !dtype->is_string() || !shape->is_array() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return false;
  }
  tensor->dtype = code_of(dtype->get<std::string>());
  if (tensor->dtype < 0) return false;
  uint64_t bytes = static_cast<uint64_t>(dtype_size(tensor->dtype));
  for (const Json& size : *shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > (uint64_t{1} << 40)) return false;
    tensor->shape.push_back(size.get<int64_t>());
    if (__builtin_mul_overflow(bytes, size.get<uint64_t>(), &bytes)) return false;
  }
  *begin = (*offsets)[0].get<uint64_t>();
  *end = (*offsets)[1].get<uint64_t>();
  return *end >= *begin && *end - *begin == bytes;
}

}  // namespace

Result<std::unique_ptr<WeightsFile>> WeightsFile::open(std::unique_ptr<MappedFile> file) {
  std::unique_ptr<WeightsFile> weights(new WeightsFile(file->path()));
  weights->file_ = std::move(file);
  PINFER_RETURN_IF_ERROR(weights->read_header());
  return weights;
}

Status WeightsFile::read_header() {
  const std::span<const std::byte> bytes = file_->bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() >= 8) std::memcpy(&header_bytes, bytes.data(), 8);
  if (bytes.size() < 8 || header_bytes > std::min<uint64_t>(bytes.size() - 8, kMaxHeaderBytes)) {
    return Status::data_loss(path() + ": header of " + std::to_string(header_bytes) +
                             " bytes, file of " + std::to_string(bytes.size()));
  }
  const char* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  const Json header = Json::parse(text, text + header_bytes, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Status::data_loss(path() + ": the header is not a JSON object");
  const uint64_t data_begin = 8 + header_bytes;
  std::vector<std::tuple<uint64_t, uint64_t, std::string>> spans;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    WeightTensor tensor;
    uint64_t begin = 0, end = 0;
    if (!read_entry(entry, &tensor, &begin, &end)) {
      return Status::data_loss(path() + ": tensor " + name + ": dtype, shape and offsets of the " +
                               "header do not fit each other");
    }
    spans.emplace_back(begin, end, name);
    if (name.starts_with("__pad_")) continue;
    if ((data_begin + begin) % kAlignment != 0) {
      return Status::data_loss(path() + ": tensor " + name + ": not aligned to 64 bytes");
    }
    tensor.data = bytes.data() + data_begin + begin;
    tensors_.emplace(name, std::move(tensor));
  }
  std::sort(spans.begin(), spans.end());
  uint64_t expected = 0;
  for (const auto& [begin, end, name] : spans) {
    if (begin != expected || end > bytes.size() - data_begin) {
      return Status::data_loss(path() + ": tensor " + name + ": expected offset " +
                               std::to_string(expected) + " within the file, found " +
                               std::to_string(begin) + " to " + std::to_string(end));
    }
    expected = end;
  }
  if (data_begin + expected != bytes.size()) {
    return Status::data_loss(path() + ": expected " + std::to_string(data_begin + expected) +
                             " bytes, found " + std::to_string(bytes.size()));
  }
  return Status();
}

std::unique_ptr<WeightsFile> WeightsFile::at(const void* copy) const {
  std::unique_ptr<WeightsFile> moved(new WeightsFile(path_));
  moved->tensors_ = tensors_;
  for (auto& [name, tensor] : moved->tensors_) {
    const auto offset = static_cast<const std::byte*>(tensor.data) - bytes().data();
    tensor.data = static_cast<const std::byte*>(copy) + offset;
  }
  return moved;
}

const WeightTensor* WeightsFile::find(const std::string& name) const {
  const auto entry = tensors_.find(name);
  return entry == tensors_.end() ? nullptr : &entry->second;
}

}  // namespace pinfer
