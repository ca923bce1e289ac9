#include "executor/model.h"

#include <algorithm>
#include <map>
#include <string>

#include "csrc/ops.h"
#include "csrc/shim/cuda_op_shims.h"
#include "executor/kv_cache_memory.h"

namespace pinfer {
namespace {

// The shape of a packed weight (csrc/ops.h).
std::vector<int64_t> packed_shape(int64_t out_features, int64_t in_features, int32_t dtype,
                                  int64_t group_size) {
  const int64_t panels = (out_features + 15) / 16;
  switch (dtype) {
    case AOTI_DTYPE_FLOAT32:
      return {panels, in_features, 16};
    case AOTI_DTYPE_BFLOAT16:
      return {panels, (in_features + 1) / 2, 16, 2};
    case AOTI_DTYPE_INT8:
      return {panels, (in_features + 63) / 64, 1088};
    default:
      return {panels, (in_features + group_size - 1) / group_size, 64 + 8 * group_size};
  }
}

// The same of one for CUDA (runtime/cuda_weight_format.py).
std::vector<int64_t> cuda_packed_shape(int64_t out_features, int64_t in_features,
                                       const WeightFormat& format) {
  const int64_t bytes =
      cuda_weight_bytes(format.dtype, format.group_size, out_features, in_features);
  if (format.dtype == PINFER_BFLOAT16 || format.dtype == PINFER_FLOAT16) {
    return {out_features, bytes / 2 / out_features};
  }
  return {bytes};
}

Result<const WeightTensor*> find_tensor(const WeightsFile& weights, const std::string& name,
                                        const std::vector<int64_t>& shape, int32_t dtype) {
  const WeightTensor* tensor = weights.find(name);
  if (tensor == nullptr) {
    return Status::data_loss(weights.path() + ": tensor " + name + " is missing");
  }
  if (tensor->dtype != dtype || tensor->shape != shape) {
    return Status::data_loss(weights.path() + ": tensor " + name +
                             ": dtype or shape differs from what the manifest implies");
  }
  return tensor;
}

// A table of so many rows, packed as its bundle's device wants it.
Result<const WeightTensor*> find_table(const WeightsFile& weights, const Manifest& manifest,
                                       const std::string& name, int64_t num_rows) {
  const WeightFormat& format = manifest.embedding_format;
  if (manifest.device != "cuda") {
    return find_tensor(
        weights, name,
        packed_shape(num_rows, manifest.hidden_size, format.dtype, format.group_size),
        format.dtype);
  }
  const bool is_plain = format.dtype == PINFER_BFLOAT16 || format.dtype == PINFER_FLOAT16;
  return find_tensor(weights, name, cuda_packed_shape(num_rows, manifest.hidden_size, format),
                     is_plain ? format.dtype : AOTI_DTYPE_UINT8);
}

// The table of learned positions: packed like the embedding, with a row for every position that the
// model may reach.
Result<const WeightTensor*> find_positions(const WeightsFile& weights, const Manifest& manifest) {
  if (manifest.device == "cuda") {
    return find_table(weights, manifest, manifest.position_weight, manifest.num_positions);
  }
  const WeightTensor* tensor = weights.find(manifest.position_weight);
  const int64_t panels = tensor == nullptr || tensor->shape.empty() ? 0 : tensor->shape[0];
  if (panels * 16 < manifest.max_model_len) {
    return Status::data_loss(weights.path() + ": tensor " + manifest.position_weight +
                             ": expected rows for " + std::to_string(manifest.max_model_len) +
                             " positions, found " + std::to_string(panels * 16));
  }
  return find_table(weights, manifest, manifest.position_weight, panels * 16);
}

// At most as many frequencies as a head has pairs of numbers.
Result<const WeightTensor*> find_frequencies(const WeightsFile& weights, const std::string& name,
                                             int64_t head_dim) {
  const WeightTensor* tensor = weights.find(name);
  const int64_t count = tensor == nullptr || tensor->shape.empty() ? 1 : tensor->shape[0];
  if (count < 1 || count > std::max<int64_t>(head_dim / 2, 1)) {
    return Status::data_loss(weights.path() + ": tensor " + name + ": expected 1 to " +
                             std::to_string(head_dim / 2) + " rotary frequencies, found " +
                             std::to_string(count));
  }
  return find_tensor(weights, name, {count}, AOTI_DTYPE_FLOAT32);
}

bool fits(const std::vector<TensorType>& types, size_t i, int32_t dtype,
          const std::vector<int64_t>& shape) {
  return i < types.size() && types[i].dtype == dtype && types[i].shape == shape;
}

// Generated code does not check its inputs: what the artifacts take must be what we will pass.
Status check_artifacts(const Manifest& manifest,
                       const std::vector<const WeightTensor*>& inv_freqs) {
  constexpr int32_t kF32 = AOTI_DTYPE_FLOAT32, kI32 = AOTI_DTYPE_INT32;
  const int64_t hidden = manifest.hidden_size;
  const int64_t kv_heads = manifest.num_kv_heads;
  const int64_t width = kv_token_width(manifest.kv_cache_dtype, manifest.head_dim);
  const int64_t block = manifest.block_size;
  const int32_t cache_dtype = manifest.cache_tensor_dtype();
  std::vector<int64_t> k_shape = {-1, kv_heads, width, block};
  std::vector<int64_t> v_shape = {-1, kv_heads, block, width};
  if (manifest.device == "cuda") {
    k_shape = v_shape = {-1, kv_heads, block, cuda::padded_head_dim(manifest.head_dim)};
  }
  for (const LayerEntry& layer : manifest.layers) {
    const ArtifactEntry& entry = manifest.artifacts.at(layer.artifact);
    const std::vector<TensorType>& in = entry.inputs;
    const int64_t num_freqs = inv_freqs[static_cast<size_t>(layer.rotary)]->shape[0];
    if (in.size() != 9 || !fits(in, 0, kF32, {-1, hidden}) || !fits(in, 1, kF32, {-1, num_freqs}) ||
        !fits(in, 2, kF32, {-1, num_freqs}) || !fits(in, 3, cache_dtype, k_shape) ||
        !fits(in, 4, cache_dtype, v_shape) || !fits(in, 5, AOTI_DTYPE_INT64, {-1}) ||
        !fits(in, 6, kI32, {-1, -1}) || !fits(in, 7, kI32, {-1}) || !fits(in, 8, kI32, {-1}) ||
        !fits(entry.outputs, 0, kF32, {-1, hidden})) {
      return Status::data_loss("artifact " + entry.name +
                               ": inputs or outputs do not fit the manifest's model");
    }
  }
  const ArtifactEntry& head = manifest.artifacts.at(manifest.head.artifact);
  if (head.inputs.size() != 1 || !fits(head.inputs, 0, kF32, {-1, hidden}) ||
      !fits(head.outputs, 0, kF32,
            {-1, manifest.task == Task::EMBED ? hidden : manifest.vocab_size})) {
    return Status::data_loss("artifact " + head.name +
                             ": inputs or outputs do not fit the manifest's model");
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(std::shared_ptr<const Bundle> bundle,
                                           const ShimProvider& provider) {
  return load(std::move(bundle), provider, nullptr);
}

Result<std::unique_ptr<Model>> Model::load(std::shared_ptr<const Bundle> bundle,
                                           const ShimProvider& provider, const Upload& upload) {
  auto model = std::make_unique<Model>();
  model->bundle = std::move(bundle);
  model->tensor_functions = &provider.tensor_functions();
  const Manifest& manifest = model->manifest();
  const BundleFiles& files = model->bundle->files();
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> weights, files.map("weights.safetensors"));
  PINFER_ASSIGN_OR_RETURN(model->weights, WeightsFile::open(std::move(weights)));
  if (upload != nullptr) {
    PINFER_ASSIGN_OR_RETURN(const void* copy, upload(model->weights->bytes()));
    model->device_weights = model->weights->at(copy);
  }
  const WeightsFile& weights_of_parts =
      upload == nullptr ? *model->weights : *model->device_weights;
  PINFER_ASSIGN_OR_RETURN(
      model->embedding,
      find_table(weights_of_parts, manifest, manifest.embedding_weight, manifest.vocab_size));
  if (!manifest.position_weight.empty()) {
    PINFER_ASSIGN_OR_RETURN(model->position_embedding, find_positions(weights_of_parts, manifest));
  }
  for (const RotaryEntry& rotary : manifest.rotaries) {
    PINFER_ASSIGN_OR_RETURN(const WeightTensor* inv_freq,
                            find_frequencies(*model->weights, rotary.inv_freq, manifest.head_dim));
    model->inv_freqs.push_back(inv_freq);
  }
  PINFER_RETURN_IF_ERROR(check_artifacts(manifest, model->inv_freqs));

  std::map<std::string, std::shared_ptr<Artifact>> artifacts;
  for (const auto& [name, entry] : manifest.artifacts) {
    PINFER_ASSIGN_OR_RETURN(artifacts[name], Artifact::open(files, entry, provider));
  }
  for (const LayerEntry& layer : manifest.layers) {
    PINFER_ASSIGN_OR_RETURN(std::unique_ptr<Part> part,
                            Part::create(artifacts[layer.artifact], layer, weights_of_parts));
    model->layers.push_back(std::move(part));
  }
  PINFER_ASSIGN_OR_RETURN(model->head, Part::create(artifacts[manifest.head.artifact],
                                                    manifest.head, weights_of_parts));
  return model;
}

}  // namespace pinfer
