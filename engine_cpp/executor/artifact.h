// A compiled artifact: a shared object opened, its host functions bound, its containers made.
//
// One artifact serves every layer of its kind. Each use is a Part: a container of its own, with
// that layer's weights bound where they lie in the mapped weights file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bundle/manifest.h"
#include "bundle/weights_file.h"
#include "core/status.h"
#include "csrc/shim/aoti.h"
#include "csrc/shim/provider.h"
#include "executor/artifact_library.h"

namespace pinfer {

// Container functions of an opened artifact.
struct ContainerFunctions {
  AOTInductorModelContainerCreateWithDeviceFn create = nullptr;
  AOTInductorModelContainerDeleteFn destroy = nullptr;
  AOTInductorModelContainerRunSingleThreadedFn run = nullptr;
  AOTInductorModelContainerGetNumConstantsFn num_constants = nullptr;
  AOTInductorModelContainerGetConstantOriginalFQNFn constant_name = nullptr;
  AOTInductorModelContainerGetConstantDtypeFn constant_dtype = nullptr;
  AOTInductorModelContainerGetConstantDataSizeFn constant_size = nullptr;
  AOTInductorModelContainerUpdateUserManagedConstantBufferPairsFn bind_constants = nullptr;
  AOTInductorModelContainerGetNumInputsFn num_inputs = nullptr;
  AOTInductorModelContainerGetNumOutputsFn num_outputs = nullptr;
  AOTInductorGetLastErrorFn last_error = nullptr;
};

// Owns the opened shared object; parts keep it alive. Immutable after open.
class Artifact {
 public:
  // Opens the bundle's file that the manifest describes as `entry`, and binds every name that it
  // asks for to `provider`'s function. FAILED_PRECONDITION or DATA_LOSS naming the file and the
  // symbol. REQUIRES: the file's hash and the processor's features have been checked.
  static Result<std::shared_ptr<Artifact>> open(const BundleFiles& files,
                                                const ArtifactEntry& entry,
                                                const ShimProvider& provider);

  Artifact(const Artifact&) = delete;
  Artifact& operator=(const Artifact&) = delete;

  const std::string& path() const { return path_; }
  const ArtifactEntry& entry() const { return entry_; }
  const ContainerFunctions& functions() const { return functions_; }
  const ShimProvider& provider() const { return provider_; }
  const TensorFunctions& tensor_functions() const { return provider_.tensor_functions(); }

  // What the artifact said about its last error, with the op's own reason where there is one.
  std::string last_error() const;

 private:
  Artifact(std::string path, ArtifactEntry entry, const ShimProvider& provider)
      : path_(std::move(path)), entry_(std::move(entry)), provider_(provider) {}
  Status find_functions();

  std::string path_;
  ArtifactEntry entry_;
  const ShimProvider& provider_;
  std::unique_ptr<ArtifactLibrary> library_;
  ContainerFunctions functions_;
};

// One use of an artifact with its weights. Used by one thread at a time.
class Part {
 public:
  // Binds the tensors of `weights` that `part` names, without a copy. DATA_LOSS or
  // FAILED_PRECONDITION naming the tensor if the artifact's constants, the manifest and the
  // weights file do not agree in names, dtypes and sizes.
  static Result<std::unique_ptr<Part>> create(std::shared_ptr<Artifact> artifact,
                                              const PartEntry& part, const WeightsFile& weights);

  ~Part();
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  // Runs the part. Input handles are consumed, also on failure; the output belongs to the caller.
  // INTERNAL if an input is not what the artifact's entry lists, dense and aligned (part_inputs.h).
  // REQUIRES: as many inputs as the artifact's entry lists.
  Result<AtenTensorHandle> run(std::span<AtenTensorHandle> inputs);

 private:
  explicit Part(std::shared_ptr<Artifact> artifact) : artifact_(std::move(artifact)) {}
  Status bind_weights(const PartEntry& part, const WeightsFile& weights);
  Result<AtenTensorHandle> wrap_weight(const TensorType& constant, const PartEntry& part,
                                       const WeightsFile& weights) const;

  std::shared_ptr<Artifact> artifact_;
  AOTInductorModelContainerHandle container_ = nullptr;
  std::vector<AtenTensorHandle> weight_handles_;  // the container's, which it does not delete
};

}  // namespace pinfer
