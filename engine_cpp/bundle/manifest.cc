#include "bundle/manifest.h"

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "csrc/ops.h"
#include "csrc/shim/aoti.h"

namespace pinfer {
namespace {

using Json = nlohmann::json;

struct DtypeInfo {
  std::string_view name;
  int32_t code;
  int64_t size;
};

constexpr DtypeInfo kDtypes[] = {
    {"float32", AOTI_DTYPE_FLOAT32, 4}, {"bfloat16", AOTI_DTYPE_BFLOAT16, 2},
    {"int8", AOTI_DTYPE_INT8, 1},       {"uint8", AOTI_DTYPE_UINT8, 1},
    {"int32", AOTI_DTYPE_INT32, 4},     {"int64", AOTI_DTYPE_INT64, 8},
    {"float16", AOTI_DTYPE_FLOAT16, 2}, {"float8_e4m3fn", PINFER_FLOAT8_E4M3, 1},
};

// Thrown and caught in this file only.
struct FieldError {
  std::string message;
};

// One JSON value with its path, for messages that name the field.
class Field {
 public:
  Field(const Json& value, std::string path) : value_(value), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& expected) const {
    std::string found = value_.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (found.size() > 60) found = found.substr(0, 57) + "...";
    throw FieldError{path_ + ": expected " + expected + ", found " + found};
  }

  Field at(const std::string& key) const {
    if (!value_.is_object()) fail("an object");
    const auto entry = value_.find(key);
    if (entry == value_.end()) throw FieldError{path_ + "." + key + ": missing"};
    return Field(*entry, path_ + "." + key);
  }

  bool has(const std::string& key) const {
    const auto entry = value_.find(key);
    return entry != value_.end() && !entry->is_null();
  }

  bool is_text() const { return value_.is_string(); }

  std::string text() const {
    if (!value_.is_string()) fail("a string");
    return value_.get<std::string>();
  }

  int64_t integer(int64_t low, int64_t high) const {
    if (!value_.is_number_integer() || value_.get<int64_t>() < low ||
        value_.get<int64_t>() > high ||
        (value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(high))) {
      fail("an integer from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return value_.get<int64_t>();
  }

  int32_t size(int32_t high) const { return static_cast<int32_t>(integer(1, high)); }

  double number() const {
    if (!value_.is_number()) fail("a number");
    return value_.get<double>();
  }

  bool boolean() const {
    if (!value_.is_boolean()) fail("true or false");
    return value_.get<bool>();
  }

  std::vector<Field> items() const {
    if (!value_.is_array()) fail("a list");
    std::vector<Field> fields;
    for (size_t i = 0; i < value_.size(); ++i) {
      fields.emplace_back(value_[i], path_ + "[" + std::to_string(i) + "]");
    }
    return fields;
  }

  std::vector<std::pair<std::string, Field>> members() const {
    if (!value_.is_object()) fail("an object");
    std::vector<std::pair<std::string, Field>> fields;
    for (const auto& [key, value] : value_.items()) {
      fields.emplace_back(key, Field(value, path_ + "." + key));
    }
    return fields;
  }

  std::vector<std::string> texts() const {
    std::vector<std::string> values;
    for (const Field& item : items()) values.push_back(item.text());
    return values;
  }

 private:
  const Json& value_;
  std::string path_;
};

constexpr int32_t kMaxCount = 1 << 24;

TensorType read_tensor_type(const Field& field) {
  TensorType type;
  type.name = field.at("name").text();
  const Field dtype = field.at("dtype");
  type.dtype = dtype_code(dtype.text());
  if (type.dtype < 0) dtype.fail("a known dtype");
  for (const Field& item : field.at("shape").items()) {
    // A dimension that stays free is spelled by its name.
    type.shape.push_back(item.is_text() ? -1 : item.integer(0, int64_t{1} << 40));
  }
  return type;
}

std::vector<TensorType> read_tensor_types(const Field& field) {
  std::vector<TensorType> types;
  for (const Field& item : field.items()) types.push_back(read_tensor_type(item));
  return types;
}

// Names of files are plain relative paths below the bundle.
std::string read_file_name(const Field& field, const std::map<std::string, FileEntry>& files) {
  const std::string name = field.text();
  if (files.find(name) == files.end()) field.fail("a file that `files` lists");
  return name;
}

bool is_safe_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != std::string::npos) return false;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

void read_files(const Field& field, Manifest* manifest) {
  for (const auto& [name, entry] : field.members()) {
    if (!is_safe_path(name)) entry.fail("a relative path below the bundle as its name");
    FileEntry file;
    file.size = entry.at("size").integer(0, int64_t{1} << 50);
    const Field hash = entry.at("sha256");
    file.sha256 = hash.text();
    if (file.sha256.size() != 64 ||
        file.sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
      hash.fail("64 lower-case hex digits");
    }
    manifest->files.emplace(name, std::move(file));
  }
}

// Of a bundle for CUDA.
WeightFormat read_cuda_weight_format(const Field& field) {
  WeightFormat format;
  const Field name = field.at("name");
  format.dtype = name.text() == "bfloat16"  ? PINFER_BFLOAT16
                 : name.text() == "float16" ? PINFER_FLOAT16
                 : name.text() == "float8"  ? PINFER_FLOAT8_E4M3
                                            : PINFER_INT4;
  if (format.dtype != PINFER_INT4) return format;
  if (name.text() != "int4") name.fail("bfloat16, float16, float8 or int4");
  const Field group_size = field.at("group_size");
  format.group_size = group_size.size(4096);
  if (format.group_size < 32 || !std::has_single_bit(static_cast<uint64_t>(format.group_size))) {
    group_size.fail("32 or a power of 2 above");
  }
  return format;
}

WeightFormat read_weight_format(const Field& field) {
  WeightFormat format;
  const Field name = field.at("name");
  format.dtype = name.text() == "int4" ? AOTI_DTYPE_UINT8 : dtype_code(name.text());
  if (format.dtype != AOTI_DTYPE_FLOAT32 && format.dtype != AOTI_DTYPE_BFLOAT16 &&
      format.dtype != AOTI_DTYPE_INT8 && name.text() != "int4") {
    name.fail("float32, bfloat16, int8 or int4");
  }
  if (name.text() == "int4") {
    const Field group_size = field.at("group_size");
    format.group_size = group_size.size(4096);
    if (format.group_size < 32 || format.group_size % 32 != 0) {
      group_size.fail("a multiple of 32");
    }
  }
  return format;
}

PartEntry read_part(const Field& field, const Manifest& manifest) {
  PartEntry part;
  const Field artifact = field.at("artifact");
  part.artifact = artifact.text();
  if (manifest.artifacts.find(part.artifact) == manifest.artifacts.end()) {
    artifact.fail("an artifact that `artifacts` lists");
  }
  for (const auto& [constant, tensor] : field.at("weights").members()) {
    part.weights.emplace(constant, tensor.text());
  }
  return part;
}

// float32 divides by it and multiplies with it.
float read_scale(const Field& field) {
  using Limits = std::numeric_limits<float>;
  const double scale = field.number();
  if (!(scale >= Limits::min() && scale <= Limits::max())) field.fail("a positive number");
  return static_cast<float>(scale);
}

LayerEntry read_layer(const Field& field, const Manifest& manifest) {
  LayerEntry layer;
  static_cast<PartEntry&>(layer) = read_part(field, manifest);
  layer.rotary = static_cast<int32_t>(
      field.at("rotary").integer(0, static_cast<int64_t>(manifest.rotaries.size()) - 1));
  layer.sliding_window = static_cast<int32_t>(field.at("sliding_window").integer(0, INT32_MAX));
  if (manifest.kv_cache_dtype == PINFER_FLOAT8_E4M3) {
    layer.k_scale = read_scale(field.at("k_scale"));
    layer.v_scale = read_scale(field.at("v_scale"));
  }
  return layer;
}

PoolingEntry read_pooling(const Field& field) {
  PoolingEntry pooling;
  const Field mode = field.at("mode");
  if (mode.text() != "last" && mode.text() != "mean") mode.fail("last or mean");
  pooling.mode = mode.text() == "mean" ? PoolingMode::MEAN : PoolingMode::LAST;
  pooling.normalize = field.at("normalize").boolean();
  for (const auto& [name, text] : field.at("prompts").members()) {
    pooling.prompts.emplace(name, text.text());
  }
  if (field.has("default_prompt_name")) {
    const Field name = field.at("default_prompt_name");
    pooling.default_prompt_name = name.text();
    if (!pooling.prompts.contains(name.text())) name.fail("the name of a prompt");
  }
  return pooling;
}

void read_model(const Field& root, Manifest* manifest) {
  if (root.has("task")) {  // bundles that say nothing generate
    const Field task = root.at("task");
    if (task.text() != "generate" && task.text() != "embed") task.fail("generate or embed");
    if (task.text() == "embed") manifest->task = Task::EMBED;
  }
  const bool embeds = manifest->task == Task::EMBED;
  if (embeds) manifest->pooling = read_pooling(root.at("pooling"));
  const Field model = root.at("model");
  manifest->model_name = model.at("model_name").text();
  manifest->architecture = model.at("architecture").text();
  const Field dtype = model.at("dtype");
  manifest->dtype = dtype.text();
  manifest->max_model_len = model.at("max_model_len").size(1 << 28);
  manifest->vocab_size = model.at("vocab_size").size(kMaxCount);
  manifest->num_layers = model.at("num_layers").size(1 << 16);
  manifest->hidden_size = model.at("hidden_size").size(kMaxCount);
  manifest->num_heads = model.at("num_heads").size(1 << 16);
  manifest->num_kv_heads = model.at("num_kv_heads").size(1 << 16);
  manifest->head_dim = model.at("head_dim").size(256);
  const Field target = root.at("target");
  manifest->device = target.at("device").text();
  const bool is_cuda = manifest->device == "cuda";
  if (is_cuda) manifest->cuda_archs = target.at("cuda_archs").texts();
  // A device that this engine does not know is refused when the model is to run.
  if (manifest->dtype != "bfloat16" && manifest->dtype != (is_cuda ? "float16" : "float32")) {
    dtype.fail(is_cuda ? "bfloat16 or float16" : "float32 or bfloat16");
  }
  manifest->cpu_isa = target.at("cpu_isa").text();
  manifest->cpu_features = target.at("cpu_features").texts();
  manifest->providers = root.at("providers").texts();
  const Field cache_dtype = root.at("kv_cache").at("dtype");
  manifest->kv_cache_dtype = dtype_code(cache_dtype.text());
  if (is_cuda) {
    if (manifest->kv_cache_dtype != AOTI_DTYPE_BFLOAT16 &&
        manifest->kv_cache_dtype != AOTI_DTYPE_FLOAT16 &&
        manifest->kv_cache_dtype != PINFER_FLOAT8_E4M3) {
      cache_dtype.fail("bfloat16, float16 or float8_e4m3fn");
    }
  } else if (manifest->kv_cache_dtype != AOTI_DTYPE_FLOAT32 &&
             manifest->kv_cache_dtype != AOTI_DTYPE_BFLOAT16 &&
             manifest->kv_cache_dtype != AOTI_DTYPE_INT8) {
    cache_dtype.fail("float32, bfloat16 or int8");
  }
  manifest->block_size = root.at("kv_cache").at("block_size").size(256);
  for (const auto& [name, field] : root.at("artifacts").members()) {
    ArtifactEntry entry;
    entry.name = name;
    entry.file = read_file_name(field.at("file"), manifest->files);
    entry.symbols = field.at("symbols").texts();
    entry.inputs = read_tensor_types(field.at("inputs"));
    entry.outputs = read_tensor_types(field.at("outputs"));
    entry.constants = read_tensor_types(field.at("constants"));
    manifest->artifacts.emplace(name, std::move(entry));
  }
  manifest->embedding_weight = root.at("embedding").at("weight").text();
  const Field format = root.at("embedding").at("format");
  manifest->embedding_format =
      is_cuda ? read_cuda_weight_format(format) : read_weight_format(format);
  manifest->embedding_scale = root.at("embedding").at("scale").number();
  if (root.at("embedding").has("position_weight")) {
    manifest->position_weight = root.at("embedding").at("position_weight").text();
    if (is_cuda) {
      const Field positions = root.at("embedding").at("num_positions");
      manifest->num_positions = positions.size(1 << 28);
      if (manifest->num_positions < manifest->max_model_len) {
        positions.fail("at least max_model_len");
      }
    }
  }
  for (const Field& rotary : root.at("rotaries").items()) {
    manifest->rotaries.push_back(
        {rotary.at("inv_freq").text(), rotary.at("attention_scaling").number()});
  }
  for (const Field& layer : root.at("layers").items()) {
    manifest->layers.push_back(read_layer(layer, *manifest));
  }
  if (static_cast<int32_t>(manifest->layers.size()) != manifest->num_layers) {
    root.at("layers").fail(std::to_string(manifest->num_layers) + " entries");
  }
  manifest->head = read_part(root.at(embeds ? "final_norm" : "head"), *manifest);
}

void read_text(const Field& root, Manifest* manifest) {
  const Field text = root.at("text");
  for (const Field& id : text.at("eos_token_ids").items()) {
    manifest->eos_token_ids.push_back(static_cast<int32_t>(id.integer(0, INT32_MAX)));
  }
  if (text.has("bos_token_id")) {
    manifest->bos_token_id = static_cast<int32_t>(text.at("bos_token_id").integer(0, INT32_MAX));
  }
  const Field defaults = root.at("generation_defaults");
  GenerationDefaults& out = manifest->generation_defaults;
  if (defaults.has("temperature")) out.temperature = defaults.at("temperature").number();
  if (defaults.has("top_p")) out.top_p = defaults.at("top_p").number();
  if (defaults.has("min_p")) out.min_p = defaults.at("min_p").number();
  if (defaults.has("repetition_penalty")) {
    out.repetition_penalty = defaults.at("repetition_penalty").number();
  }
  if (defaults.has("top_k")) {
    out.top_k = static_cast<int32_t>(defaults.at("top_k").integer(-1, INT32_MAX));
  }
}

Result<Manifest> read_manifest(const Json& json, const std::string& source) {
  const Field root(json, "manifest");
  const int64_t version = root.at("format_version").integer(0, INT32_MAX);
  if (version != kBundleFormatVersion) {
    return Status::failed_precondition(
        source + ": bundle format version " + std::to_string(version) + ", this engine reads " +
        std::to_string(kBundleFormatVersion) + "; export the model again");
  }
  Manifest manifest;
  manifest.exporter_version = root.at("exporter_version").text();
  if (root.has("torch_version")) manifest.torch_version = root.at("torch_version").text();
  for (const std::string& part : root.at("parts").texts()) {
    manifest.has_model |= part == "model";
    manifest.has_text |= part == "text";
  }
  read_files(root.at("files"), &manifest);
  if (manifest.has_model) read_model(root, &manifest);
  if (manifest.has_text) read_text(root, &manifest);
  return manifest;
}

}  // namespace

int64_t dtype_size(int32_t dtype) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.code == dtype) return info.size;
  }
  return 0;
}

int32_t dtype_code(std::string_view name) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.name == name) return info.code;
  }
  return -1;
}

std::string_view dtype_name(int32_t code) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.code == code) return info.name;
  }
  return "unknown";
}

int32_t Manifest::cache_tensor_dtype() const {
  return kv_cache_dtype == PINFER_FLOAT8_E4M3 ? int32_t{AOTI_DTYPE_UINT8} : kv_cache_dtype;
}

std::vector<int32_t> Manifest::layer_windows() const {
  std::vector<int32_t> windows;
  for (const LayerEntry& layer : layers) windows.push_back(layer.sliding_window);
  return windows;
}

Result<Manifest> Manifest::parse(std::string_view text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Status::data_loss(source + ": not valid JSON");
  try {
    return read_manifest(json, source);
  } catch (const FieldError& error) {
    return Status::data_loss(source + ": " + error.message);
  }
}

}  // namespace pinfer
