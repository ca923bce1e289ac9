#include "executor/model.h"

#include <algorithm>
#include <map>
#include <string>

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

// The table of learned positions: packed like the embedding, with a row for every position that the
// model may reach.
Result<const WeightTensor*> find_positions(const WeightsFile& weights, const Manifest& manifest) {
  const WeightFormat& format = manifest.embedding_format;
  const WeightTensor* tensor = weights.find(manifest.position_weight);
  const int64_t panels = tensor == nullptr || tensor->shape.empty() ? 0 : tensor->shape[0];
  if (panels * 16 < manifest.max_model_len) {
    return Status::data_loss(weights.path() + ": tensor " + manifest.position_weight +
                             ": expected rows for " + std::to_string(manifest.max_model_len) +
                             " positions, found " + std::to_string(panels * 16));
  }
  return find_tensor(
      weights, manifest.position_weight,
      packed_shape(panels * 16, manifest.hidden_size, format.dtype, format.group_size),
      format.dtype);
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
  for (const LayerEntry& layer : manifest.layers) {
    const ArtifactEntry& entry = manifest.artifacts.at(layer.artifact);
    const std::vector<TensorType>& in = entry.inputs;
    const int64_t num_freqs = inv_freqs[static_cast<size_t>(layer.rotary)]->shape[0];
    if (in.size() != 9 || !fits(in, 0, kF32, {-1, hidden}) || !fits(in, 1, kF32, {-1, num_freqs}) ||
        !fits(in, 2, kF32, {-1, num_freqs}) ||
        !fits(in, 3, manifest.kv_cache_dtype, {-1, kv_heads, width, block}) ||
        !fits(in, 4, manifest.kv_cache_dtype, {-1, kv_heads, block, width}) ||
        !fits(in, 5, AOTI_DTYPE_INT64, {-1}) || !fits(in, 6, kI32, {-1, -1}) ||
        !fits(in, 7, kI32, {-1}) || !fits(in, 8, kI32, {-1}) ||
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
  auto model = std::make_unique<Model>();
  model->bundle = std::move(bundle);
  model->tensor_functions = &provider.tensor_functions();
  const Manifest& manifest = model->manifest();
  const BundleFiles& files = model->bundle->files();
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> weights, files.map("weights.safetensors"));
  PINFER_ASSIGN_OR_RETURN(model->weights, WeightsFile::open(std::move(weights)));
  const WeightFormat& embedding = manifest.embedding_format;
  PINFER_ASSIGN_OR_RETURN(model->embedding,
                          find_tensor(*model->weights, manifest.embedding_weight,
                                      packed_shape(manifest.vocab_size, manifest.hidden_size,
                                                   embedding.dtype, embedding.group_size),
                                      embedding.dtype));
  if (!manifest.position_weight.empty()) {
    PINFER_ASSIGN_OR_RETURN(model->position_embedding, find_positions(*model->weights, manifest));
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
                            Part::create(artifacts[layer.artifact], layer, *model->weights));
    model->layers.push_back(std::move(part));
  }
  PINFER_ASSIGN_OR_RETURN(
      model->head, Part::create(artifacts[manifest.head.artifact], manifest.head, *model->weights));
  return model;
}

}  // namespace pinfer
