// manifest.json as the engine knows it (docs/bundle_format.md). Reading checks every field that is
// used later, so that the rest of the engine may rely on them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/pooling_params.h"
#include "core/status.h"

namespace pinfer {

inline constexpr int64_t kBundleFormatVersion = 1;

// A tensor's or argument's type: dtype by its code (torch's ScalarType) and shape. In arguments of
// artifacts a dimension that is free is -1.
struct TensorType {
  std::string name;
  int32_t dtype = -1;
  std::vector<int64_t> shape;
};

struct ArtifactEntry {
  std::string name;
  std::string file;  // relative to the bundle
  std::vector<std::string> symbols;
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  std::vector<TensorType> constants;
};

// How a packed weight is stored (csrc/ops.h).
struct WeightFormat {
  // Of the tensor, int4 as AOTI_DTYPE_UINT8; for CUDA the code of csrc/ops.h (PINFER_INT4, ...).
  int32_t dtype = -1;
  int64_t group_size = 0;  // of int4
};

// A use of an artifact: which tensor of the weights file each of its constants is.
struct PartEntry {
  std::string artifact;
  std::map<std::string, std::string> weights;  // constant -> tensor
};

struct LayerEntry : PartEntry {
  int32_t rotary = 0;              // index of Manifest::rotaries
  int32_t sliding_window = 0;      // positions that a token sees, itself included; 0: all
  float k_scale = 1, v_scale = 1;  // of a cache of fp8: a number stands for itself times this
};

// A table of rotary frequencies; layers of different kinds may use different ones.
struct RotaryEntry {
  std::string inv_freq;  // tensor, float32 [frequencies]
  double attention_scaling = 1.0;
};

// What the model is for: text, or one vector for each input.
enum class Task { GENERATE, EMBED };

// How a model embeds, and the texts that it wants before inputs of several kinds.
struct PoolingEntry {
  PoolingMode mode = PoolingMode::LAST;
  bool normalize = true;
  std::map<std::string, std::string> prompts;      // by name
  std::optional<std::string> default_prompt_name;  // one of them
};

struct FileEntry {
  int64_t size = 0;
  std::string sha256;
};

// Sampling parameters that the model's generation config sets.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
};

struct Manifest {
  std::string exporter_version, torch_version;
  bool has_model = false, has_text = false;

  // Model; meaningful if has_model.
  Task task = Task::GENERATE;
  PoolingEntry pooling;  // of EMBED
  std::string model_name, architecture, dtype;
  int32_t max_model_len = 0, vocab_size = 0, num_layers = 0, hidden_size = 0;
  int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::string device, cpu_isa;
  std::vector<std::string> cpu_features, providers;
  std::vector<std::string> cuda_archs;  // of the device cuda: what kernels are compiled for
  int32_t kv_cache_dtype = -1;
  int32_t block_size = 0;
  std::map<std::string, ArtifactEntry> artifacts;
  std::string embedding_weight, position_weight;  // the second is "" without learned positions
  int32_t num_positions = 0;                      // rows of the second; of the device cuda
  WeightFormat embedding_format;                  // of both
  double embedding_scale = 1.0;                   // what embeddings are multiplied by
  std::vector<RotaryEntry> rotaries;
  std::vector<LayerEntry> layers;
  PartEntry head;  // of EMBED: the final norm alone

  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
  GenerationDefaults generation_defaults;

  std::map<std::string, FileEntry> files;

  // Of the caches that artifacts take: those of float8 are bytes to them.
  int32_t cache_tensor_dtype() const;

  // By layer: the tokens that a token attends to, itself included; 0 = all.
  std::vector<int32_t> layer_windows() const;

  // `source` names the file in messages. DATA_LOSS for text that is not a manifest,
  // FAILED_PRECONDITION for another format version.
  static Result<Manifest> parse(std::string_view text, const std::string& source);
};

// Bytes of one element; 0 for a code that bundles do not use.
int64_t dtype_size(int32_t dtype);
// The code behind "float32", "bfloat16", ...; -1 if unknown.
int32_t dtype_code(std::string_view name);
std::string_view dtype_name(int32_t code);

}  // namespace pinfer
