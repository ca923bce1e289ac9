#include "executor/artifact.h"

#include <algorithm>
#include <limits>

#include "csrc/ops.h"
#include "csrc/shim/handle_recorder.h"
#include "executor/part_inputs.h"

namespace pinfer {
namespace {

// AOTInductor rounds the sizes of constants up to this.
constexpr int64_t kConstantAlignment = 64;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

int64_t num_bytes(const TensorType& type) {
  int64_t bytes = dtype_size(type.dtype);
  for (const int64_t size : type.shape) bytes *= size;
  return bytes;
}

}  // namespace

Result<std::shared_ptr<Artifact>> Artifact::open(const BundleFiles& files,
                                                 const ArtifactEntry& entry,
                                                 const ShimProvider& provider) {
  const std::string path = files.name_of(entry.file);
  std::shared_ptr<Artifact> artifact(new Artifact(path, entry, provider));
  PINFER_ASSIGN_OR_RETURN(artifact->library_, ArtifactLibrary::open(files, entry.file, provider));
  if (artifact->library_->symbols() != entry.symbols) {
    return Status::data_loss(path + ": its names differ from the manifest's: an artifact of " +
                             "another bundle?");
  }
  PINFER_RETURN_IF_ERROR(artifact->find_functions());
  return artifact;
}

Status Artifact::find_functions() {
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_->find(name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(functions_.create, "AOTInductorModelContainerCreateWithDevice");
  find(functions_.destroy, "AOTInductorModelContainerDelete");
  find(functions_.run, "AOTInductorModelContainerRunSingleThreaded");
  find(functions_.num_constants, "AOTInductorModelContainerGetNumConstants");
  find(functions_.constant_name, "AOTInductorModelContainerGetConstantOriginalFQN");
  find(functions_.constant_dtype, "AOTInductorModelContainerGetConstantDtype");
  find(functions_.constant_size, "AOTInductorModelContainerGetConstantDataSize");
  find(functions_.bind_constants, "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs");
  find(functions_.num_inputs, "AOTInductorModelContainerGetNumInputs");
  find(functions_.num_outputs, "AOTInductorModelContainerGetNumOutputs");
  find(functions_.last_error, "AOTInductorGetLastError");
  if (!missing.empty()) return Status::data_loss(path_ + ": function " + missing + " is missing");
  return Status();
}

std::string Artifact::last_error() const {
  const char* message = nullptr;
  functions_.last_error(&message);
  std::string text = message == nullptr ? "unknown error" : message;
  const std::string reason = pinfer_ops_last_error();
  if (!reason.empty()) text += " (" + reason + ")";
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Result<std::unique_ptr<Part>> Part::create(std::shared_ptr<Artifact> artifact,
                                           const PartEntry& part, const WeightsFile& weights) {
  std::unique_ptr<Part> created(new Part(std::move(artifact)));
  PINFER_RETURN_IF_ERROR(created->bind_weights(part, weights));
  return created;
}

Part::~Part() {
  if (container_ != nullptr) artifact_->functions().destroy(container_);
  for (const AtenTensorHandle handle : weight_handles_) {
    artifact_->tensor_functions().delete_tensor_object(handle);
  }
}

Status Part::bind_weights(const PartEntry& part, const WeightsFile& weights) {
  const ContainerFunctions& functions = artifact_->functions();
  const ArtifactEntry& entry = artifact_->entry();
  if (functions.create(&container_, 1, artifact_->provider().device(), nullptr) != 0) {
    return Status::internal(artifact_->path() + ": cannot create: " + artifact_->last_error());
  }
  size_t num_constants = 0, num_inputs = 0, num_outputs = 0;
  functions.num_constants(container_, &num_constants);
  functions.num_inputs(container_, &num_inputs);
  functions.num_outputs(container_, &num_outputs);
  if (num_constants != entry.constants.size() || num_inputs != entry.inputs.size() ||
      num_outputs != 1 || entry.outputs.size() != 1 || part.weights.size() != num_constants) {
    return Status::data_loss(artifact_->path() + ": numbers of constants, inputs or outputs " +
                             "differ from the manifest's: an artifact of another bundle?");
  }
  std::vector<AOTInductorConstantMapEntry> pairs;
  Status status;
  for (size_t i = 0; i < num_constants && status.ok(); ++i) {
    const char* name = nullptr;
    int32_t dtype = -1;
    size_t bytes = 0;
    functions.constant_name(container_, i, &name);
    functions.constant_dtype(container_, i, &dtype);
    functions.constant_size(container_, i, &bytes);
    const auto constant = std::find_if(entry.constants.begin(), entry.constants.end(),
                                       [&](const TensorType& type) { return type.name == name; });
    if (constant == entry.constants.end() || constant->dtype != dtype ||
        (num_bytes(*constant) + kConstantAlignment - 1) / kConstantAlignment !=
            (static_cast<int64_t>(bytes) + kConstantAlignment - 1) / kConstantAlignment) {
      status = Status::data_loss(artifact_->path() + ": constant " + name +
                                 " differs from the manifest's: an artifact of another bundle?");
      break;
    }
    Result<AtenTensorHandle> handle = wrap_weight(*constant, part, weights);
    if (!handle.ok()) {
      status = handle.status();
      break;
    }
    pairs.push_back({constant->name.c_str(), handle.value()});
  }
  if (status.ok()) {
    const HandleRecorder recorder(&weight_handles_);
    if (functions.bind_constants(container_, pairs.data(), pairs.size(), false, true) != 0) {
      status = Status::internal(artifact_->path() + ": cannot bind: " + artifact_->last_error());
    }
  }
  // The container made handles of its own over the same memory.
  for (const AOTInductorConstantMapEntry& pair : pairs) {
    artifact_->tensor_functions().delete_tensor_object(pair.handle);
  }
  return status;
}

Result<AtenTensorHandle> Part::wrap_weight(const TensorType& constant, const PartEntry& part,
                                           const WeightsFile& weights) const {
  const auto name = part.weights.find(constant.name);
  if (name == part.weights.end()) {
    return Status::data_loss(artifact_->path() + ": the manifest names no tensor for constant " +
                             constant.name);
  }
  const WeightTensor* tensor = weights.find(name->second);
  if (tensor == nullptr) {
    return Status::data_loss(weights.path() + ": tensor " + name->second + " is missing");
  }
  if (tensor->dtype != constant.dtype || tensor->shape != constant.shape) {
    return Status::data_loss(
        weights.path() + ": tensor " + name->second + ": expected " +
        std::string(dtype_name(constant.dtype)) + " " + shape_text(constant.shape) + ", found " +
        std::string(dtype_name(tensor->dtype)) + " " + shape_text(tensor->shape));
  }
  std::vector<int64_t> strides(tensor->shape.size(), 1);
  for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * tensor->shape[i];
  AtenTensorHandle handle = nullptr;
  const AOTITorchError error = artifact_->tensor_functions().create_tensor_from_blob(
      const_cast<void*>(tensor->data), static_cast<int64_t>(tensor->shape.size()),
      tensor->shape.data(), strides.data(), 0, tensor->dtype, artifact_->provider().device_type(),
      0, &handle);
  if (error != 0) return Status::internal("tensor " + name->second + ": no handle");
  return handle;
}

Result<AtenTensorHandle> Part::run(std::span<AtenTensorHandle> inputs) {
  const TensorFunctions& tensors = artifact_->tensor_functions();
  const Status fit = check_part_inputs(artifact_->entry(), inputs, tensors);
  if (!fit.ok()) {
    for (const AtenTensorHandle input : inputs) {
      if (input != nullptr) tensors.delete_tensor_object(input);
    }
    return fit;
  }
  AtenTensorHandle output = nullptr;
  const AOTIRuntimeError error =
      artifact_->functions().run(container_, inputs.data(), inputs.size(), &output, 1,
                                 artifact_->provider().stream(), nullptr);
  if (error != 0) {
    return Status::internal(artifact_->entry().name + ": " + artifact_->last_error());
  }
  return output;
}

}  // namespace pinfer
