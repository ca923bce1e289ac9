// A model ready to run: weights mapped, one part for each decoder layer, the head (logits, or the
// final norm of a model that embeds).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bundle/bundle.h"
#include "bundle/weights_file.h"
#include "core/status.h"
#include "csrc/shim/provider.h"
#include "executor/artifact.h"

namespace pinfer {

struct Model {
  // Opens artifacts and weights of the bundle, which is kept, and binds them to each other.
  // REQUIRES: bundle.check_runnable(provider.name()) is ok.
  static Result<std::unique_ptr<Model>> load(std::shared_ptr<const Bundle> bundle,
                                             const ShimProvider& provider);

  // The same of a bundle for CUDA: upload() copies the weights' file into the device's memory, and
  // says where to.
  using Upload = std::function<Result<const void*>(std::span<const std::byte> bytes)>;
  static Result<std::unique_ptr<Model>> load(std::shared_ptr<const Bundle> bundle,
                                             const ShimProvider& provider, const Upload& upload);

  const Manifest& manifest() const { return bundle->manifest(); }

  std::shared_ptr<const Bundle> bundle;
  std::unique_ptr<WeightsFile> weights;         // mapped
  std::unique_ptr<WeightsFile> device_weights;  // of CUDA; embeddings below are there, too
  const TensorFunctions* tensor_functions = nullptr;
  const WeightTensor* embedding = nullptr;           // packed [vocab, hidden]
  const WeightTensor* position_embedding = nullptr;  // packed [max_model_len or more, hidden]
  std::vector<const WeightTensor*> inv_freqs;        // float32 [frequencies], one for each rotary
  std::vector<std::unique_ptr<Part>> layers;
  std::unique_ptr<Part> head;
};

}  // namespace pinfer
