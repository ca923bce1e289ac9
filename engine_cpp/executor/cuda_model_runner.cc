#include "executor/cuda_model_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/aligned_vector.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/shim/cuda_images.h"
#include "csrc/shim/cuda_op_shims.h"

namespace pinfer {
namespace {

// Requests for which decode attention divides contexts best: alone they would like smaller pieces,
// in a crowd larger ones, but one size for all gives a request the same numbers in either.
constexpr int64_t kSplitRequests = 8;

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

Status check_arch(const Manifest& manifest, const CudaDevice& device) {
  std::vector<CudaArch> archs;
  std::string names;
  for (const std::string& name : manifest.cuda_archs) {
    archs.push_back(parse_cuda_arch(name));
    names += (names.empty() ? "sm_" : ", sm_") + name;
  }
  if (choose_cuda_arch(archs, device.arch()) != nullptr) return Status();
  return Status::failed_precondition("compiled for " + names + ", the device (" + device.name() +
                                     ") is sm_" + std::to_string(device.arch()) +
                                     "; export again with --cuda-arch " +
                                     std::to_string(device.arch()));
}

}  // namespace

Result<std::unique_ptr<CudaModelRunner>> CudaModelRunner::create(
    std::shared_ptr<CudaDevice> device, std::shared_ptr<const Bundle> bundle,
    const KVCacheConfig& kv_cache_config, const CudaRunnerOptions& options) {
  std::unique_ptr<CudaModelRunner> runner(
      new CudaModelRunner(std::move(device), kv_cache_config, options));
  PINFER_RETURN_IF_ERROR(runner->load(std::move(bundle), kv_cache_config));
  return runner;
}

CudaModelRunner::CudaModelRunner(std::shared_ptr<CudaDevice> device,
                                 const KVCacheConfig& kv_cache_config,
                                 const CudaRunnerOptions& options)
    : device_(std::move(device)),
      options_(options),
      places_(kv_cache_config.places()),
      batch_(kv_cache_config.block_size(), kv_cache_config.num_groups()),
      graphs_(device_) {}

CudaModelRunner::~CudaModelRunner() {
  // What is given back below needs the context, on whichever thread this is.
  device_->make_current();
  device_->synchronize();
}

Status CudaModelRunner::load(std::shared_ptr<const Bundle> bundle,
                             const KVCacheConfig& kv_cache_config) {
  const Status fit = check_arch(bundle->manifest(), *device_);
  if (!fit.ok()) {
    return Status::failed_precondition(bundle->path() + ": " + std::string(fit.message()));
  }
  PINFER_RETURN_IF_ERROR(cuda_status(device_->make_current()));
  const auto upload = [this](std::span<const std::byte> bytes) -> Result<const void*> {
    PINFER_ASSIGN_OR_RETURN(weights_, CudaMemoryBlock::allocate(device_, bytes.size(), "weights"));
    PINFER_RETURN_IF_ERROR(
        cuda_status(device_->copy_to_device(weights_.data(), bytes.data(), bytes.size())));
    PINFER_RETURN_IF_ERROR(cuda_status(device_->synchronize()));
    return static_cast<const void*>(weights_.data());
  };
  PINFER_ASSIGN_OR_RETURN(model_, Model::load(std::move(bundle), cuda_provider(), upload));
  const Manifest& manifest = model_->manifest();
  cache_shape_ = {kv_cache_config.num_tensors(), 0,
                  manifest.num_kv_heads,         manifest.head_dim,
                  manifest.block_size,           manifest.kv_cache_dtype};
  CudaStepLimits limits = {options_.max_num_batched_tokens,
                           options_.max_num_seqs,
                           ceil_divide(options_.max_model_len, manifest.block_size),
                           kv_cache_config.num_groups(),
                           {}};
  for (const WeightTensor* inv_freq : model_->inv_freqs) {
    limits.num_freqs.push_back(inv_freq->shape[0]);
  }
  // A graph's step may be larger than the largest of the scheduler's.
  limits.max_tokens = std::max(limits.max_tokens, graph_batch_size(limits.max_seqs));
  limits.max_seqs = std::max(limits.max_seqs, graph_batch_size(limits.max_seqs));
  PINFER_ASSIGN_OR_RETURN(inputs_, CudaStepInputs::create(device_, limits));
  if (options_.max_graph_seqs > 0) {
    const auto bytes = static_cast<size_t>(limits.max_seqs * manifest.hidden_size) * sizeof(float);
    PINFER_ASSIGN_OR_RETURN(graph_states_,
                            CudaMemoryBlock::allocate(device_, bytes, "hidden states"));
  }
  device_->step.split_size = device_->kernels().choose_split_size(
      kSplitRequests, manifest.num_kv_heads, options_.max_model_len, device_->num_processors());
  return Status();
}

Status CudaModelRunner::measure() {
  const Manifest& manifest = model_->manifest();
  CudaKVCacheShape small = cache_shape_;
  small.num_blocks = 1;
  PINFER_ASSIGN_OR_RETURN(cache_, CudaKVCache::create(device_, small));
  // As many tokens as a step may have, in requests that are as long as they may be; no slot is
  // written, and every table names the null block alone.
  const int64_t longest = std::min(options_.max_num_batched_tokens, options_.max_model_len);
  const int64_t num_seqs =
      std::min(ceil_divide(options_.max_num_batched_tokens, longest), options_.max_num_seqs);
  const int64_t num_tokens = std::min(options_.max_num_batched_tokens, num_seqs * longest);
  inputs_->lay_out(num_tokens, num_seqs, ceil_divide(longest, manifest.block_size));
  std::fill_n(inputs_->token_ids().host, num_tokens, 0);
  for (int64_t i = 0; i < num_tokens; ++i) {
    inputs_->positions().host[i] = static_cast<int32_t>(i % longest);
  }
  inputs_->query_start_loc().host[0] = 0;
  for (int64_t i = 0; i < num_seqs; ++i) {
    const int64_t end = std::min(num_tokens, (i + 1) * longest);
    inputs_->seq_lens().host[i] = static_cast<int32_t>(end - i * longest);
    inputs_->query_start_loc().host[i + 1] = static_cast<int32_t>(end);
  }
  for (size_t g = 0; g < batch_.groups.size(); ++g) {
    std::fill_n(inputs_->slot_mapping(g).host, num_tokens, -1);
    std::fill_n(inputs_->block_table(g).host, num_seqs * inputs_->max_blocks(), 0);
  }
  PINFER_RETURN_IF_ERROR(fill_rotary_tables());
  PINFER_RETURN_IF_ERROR(inputs_->copy_to_device());
  device_->step.max_rows = longest;
  device_->step.max_seq_len = longest;
  PINFER_ASSIGN_OR_RETURN(hidden_states_, run_step());
  states_ = static_cast<const float*>(hidden_states_.data());
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < std::min(options_.max_num_seqs, num_tokens); ++i) {
    rows.push_back(static_cast<int32_t>(num_tokens - 1 - i));  // in no order that saves the copy
  }
  PINFER_RETURN_IF_ERROR(run_head(rows).status());
  hidden_states_ = TensorHandle();
  cache_.reset();
  return Status();
}

Status CudaModelRunner::prepare_inputs(const SchedulerOutput& scheduler_output) {
  const Manifest& manifest = model_->manifest();
  batch_.update(scheduler_output);
  const int64_t num_tokens = batch_.num_tokens(), num_seqs = batch_.num_seqs();
  if (num_tokens == 0) return Status();  // a step that only reports ended requests
  CudaStep& step = device_->step;
  if (is_decode_step()) {
    // Of sizes that are rounded up: requests without rows fill the batch, the null block the
    // tables.
    const int64_t num_rows = graph_batch_size(num_seqs);
    const int64_t max_blocks = graph_max_blocks(
        batch_.max_blocks(), ceil_divide(options_.max_model_len, manifest.block_size));
    step.max_rows = 1;
    step.max_seq_len = max_blocks * manifest.block_size;
    return fill_inputs(num_rows, num_rows, max_blocks);
  }
  step.max_rows = 0;
  for (size_t i = 0; i < static_cast<size_t>(num_seqs); ++i) {
    step.max_rows =
        std::max<int64_t>(step.max_rows, batch_.query_start_loc[i + 1] - batch_.query_start_loc[i]);
  }
  step.max_seq_len = *std::max_element(batch_.seq_lens.begin(), batch_.seq_lens.end());
  return fill_inputs(num_tokens, num_seqs, batch_.max_blocks());
}

bool CudaModelRunner::is_decode_step() const {
  const int64_t num_seqs = batch_.num_seqs();
  return batch_.num_tokens() == num_seqs && num_seqs <= options_.max_graph_seqs &&
         graph_batch_size(num_seqs) > 0;
}

Status CudaModelRunner::execute_model(const SchedulerOutput& scheduler_output) {
  hidden_states_ = TensorHandle();
  states_ = nullptr;
  num_sampled_rows_ = 0;
  if (batch_.num_tokens() == 0) return Status();
  PINFER_RETURN_IF_ERROR(cuda_status(device_->make_current()));
  Status status = start(scheduler_output);
  if (!status.ok()) device_->synchronize();  // nobody else waits for what was started before
  return status;
}

Status CudaModelRunner::start(const SchedulerOutput& scheduler_output) {
  InputBatch::copy_token_ids(scheduler_output, inputs_->token_ids().host);
  PINFER_RETURN_IF_ERROR(inputs_->copy_to_device());
  if (is_decode_step()) {
    PINFER_RETURN_IF_ERROR(run_decode_graph());
  } else {
    PINFER_ASSIGN_OR_RETURN(hidden_states_, run_step());
    states_ = static_cast<const float*>(hidden_states_.data());
  }
  if (model_->manifest().task == Task::EMBED) return Status();
  const std::vector<int32_t> rows = scheduler_output.sampled_rows();
  num_sampled_rows_ = static_cast<int32_t>(rows.size());
  return start_head(rows);
}

Status CudaModelRunner::run_decode_graph() {
  const int64_t num_seqs = inputs_->num_seqs();
  states_ = reinterpret_cast<const float*>(graph_states_.data());
  const auto work = [&]() -> Status {
    PINFER_ASSIGN_OR_RETURN(const TensorHandle y, run_step());
    const auto bytes =
        static_cast<size_t>(num_seqs * model_->manifest().hidden_size) * sizeof(float);
    return cuda_status(device_->copy_on_device(graph_states_.data(), y.data(), bytes));
  };
  const CudaGraphs::Key key = {num_seqs, inputs_->max_blocks()};
  return graphs_.is_warm(key) ? graphs_.run(key, work) : work();
}

Status CudaModelRunner::fill_inputs(int64_t num_tokens, int64_t num_seqs, int64_t max_blocks) {
  CudaStepInputs& inputs = *inputs_;
  inputs.lay_out(num_tokens, num_seqs, max_blocks);
  const int64_t tokens = batch_.num_tokens(), seqs = batch_.num_seqs();
  const auto fill = [](auto* to, const auto& from, int64_t count, auto rest) {
    std::copy(from.begin(), from.end(), to);
    std::fill(to + from.size(), to + count, rest);
  };
  std::fill_n(inputs.token_ids().host, num_tokens, 0);  // copied when they are known
  fill(inputs.positions().host, batch_.positions, num_tokens, 0);
  fill(inputs.seq_lens().host, batch_.seq_lens, num_seqs, 0);
  fill(inputs.query_start_loc().host, batch_.query_start_loc, num_seqs + 1,
       static_cast<int32_t>(tokens));
  for (size_t g = 0; g < batch_.groups.size(); ++g) {
    const GroupInputs& group = batch_.groups[g];
    fill(inputs.slot_mapping(g).host, group.slot_mapping, num_tokens, int64_t{-1});
    int32_t* table = inputs.block_table(g).host;
    std::fill_n(table, num_seqs * max_blocks, 0);
    for (int64_t i = 0; i < seqs; ++i) {
      std::copy_n(group.block_table.begin() + i * batch_.max_blocks(), batch_.max_blocks(),
                  table + i * max_blocks);
    }
  }
  return fill_rotary_tables();
}

// On the host: a few numbers for each token, while the device has other things to do.
Status CudaModelRunner::fill_rotary_tables() {
  const Manifest& manifest = model_->manifest();
  for (size_t i = 0; i < manifest.rotaries.size(); ++i) {
    const WeightTensor& inv_freq = *model_->inv_freqs[i];
    const int32_t error = pinfer_rotary_embedding(
        inputs_->positions().host, inputs_->num_tokens(), static_cast<const float*>(inv_freq.data),
        inv_freq.shape[0], manifest.rotaries[i].attention_scaling, inputs_->cos(i).host,
        inputs_->sin(i).host);
    if (error != 0) return Status::internal(pinfer_ops_last_error());
  }
  return Status();
}

Result<TensorHandle> CudaModelRunner::run_step() {
  PINFER_ASSIGN_OR_RETURN(TensorHandle embedded, embed());
  AtenTensorHandle x = embedded.release();
  for (size_t i = 0; i < model_->layers.size(); ++i) {
    Result<AtenTensorHandle> y = run_layer(i, x);
    if (!y.ok()) {
      return Status::internal("layer " + std::to_string(i) + ": " + y.status().message());
    }
    x = y.value();
  }
  return TensorHandle(model_->tensor_functions, x);
}

// x = (rows of the embedding + rows of the learned positions) * scale.
Result<TensorHandle> CudaModelRunner::embed() {
  const Manifest& manifest = model_->manifest();
  const cuda::KernelTable& kernels = device_->kernels();
  const int64_t num_tokens = inputs_->num_tokens(), hidden = manifest.hidden_size;
  const auto look_up = [&](const WeightTensor& table, int64_t num_rows, const int32_t* rows,
                           void* out) {
    const cuda::Weight weight = cuda_weight(table.data, manifest.embedding_format.dtype,
                                            manifest.embedding_format.group_size, num_rows, hidden);
    return kernel_status(kernels.gather_rows(weight, rows, 0, num_tokens, out, PINFER_FLOAT32,
                                             hidden, device_->stream()));
  };
  PINFER_ASSIGN_OR_RETURN(TensorHandle x, empty({num_tokens, hidden}));
  PINFER_RETURN_IF_ERROR(
      look_up(*model_->embedding, manifest.vocab_size, inputs_->token_ids().device, x.data()));
  TensorHandle positions;
  if (model_->position_embedding != nullptr) {
    PINFER_ASSIGN_OR_RETURN(positions, empty({num_tokens, hidden}));
    PINFER_RETURN_IF_ERROR(look_up(*model_->position_embedding, manifest.num_positions,
                                   inputs_->positions().device, positions.data()));
  }
  if (positions.data() != nullptr || manifest.embedding_scale != 1.0) {
    PINFER_RETURN_IF_ERROR(kernel_status(kernels.add_scaled(
        static_cast<float*>(x.data()), static_cast<float*>(positions.data()), num_tokens * hidden,
        static_cast<float>(manifest.embedding_scale), device_->stream())));
  }
  return x;
}

// The order of the inputs is that of decoder_layer in export/parts.py.
Result<AtenTensorHandle> CudaModelRunner::run_layer(size_t layer, AtenTensorHandle x) {
  const Manifest& manifest = model_->manifest();
  const int64_t t = inputs_->num_tokens(), s = inputs_->num_seqs();
  const auto rotary = static_cast<size_t>(manifest.layers[layer].rotary);
  const int64_t num_freqs = model_->inv_freqs[rotary]->shape[0];
  const KVCachePlace& place = places_[layer];
  const auto group = static_cast<size_t>(place.group_id);
  const CudaKVCacheShape& cache = cache_->shape();
  const int64_t width = cuda::padded_head_dim(cache.head_dim);
  const int32_t cache_dtype = manifest.cache_tensor_dtype();
  device_->step.k_scale = manifest.layers[layer].k_scale;
  device_->step.v_scale = manifest.layers[layer].v_scale;
  AtenTensorHandle inputs[] = {
      x,
      wrap(inputs_->cos(rotary).device, {t, num_freqs}, AOTI_DTYPE_FLOAT32),
      wrap(inputs_->sin(rotary).device, {t, num_freqs}, AOTI_DTYPE_FLOAT32),
      wrap(cache_->k(place.tensor_id),
           {cache.num_blocks, cache.num_kv_heads, cache.block_size, width}, cache_dtype),
      wrap(cache_->v(place.tensor_id),
           {cache.num_blocks, cache.num_kv_heads, cache.block_size, width}, cache_dtype),
      wrap(inputs_->slot_mapping(group).device, {t}, AOTI_DTYPE_INT64),
      wrap(inputs_->block_table(group).device, {s, inputs_->max_blocks()}, AOTI_DTYPE_INT32),
      wrap(inputs_->seq_lens().device, {s}, AOTI_DTYPE_INT32),
      wrap(inputs_->query_start_loc().device, {s + 1}, AOTI_DTYPE_INT32),
  };
  return model_->layers[layer]->run(inputs);
}

Result<Logits> CudaModelRunner::sampled_logits() {
  if (states_ == nullptr) return Logits();  // nothing was started
  // Also where nothing is sampled: the step's arrays in pinned memory are free only now.
  PINFER_RETURN_IF_ERROR(wait());
  return Logits{reinterpret_cast<const float*>(results_.data()), num_sampled_rows_,
                model_->manifest().vocab_size};
}

Status CudaModelRunner::wait() {
  Status status = cuda_status(device_->synchronize());
  // Nothing may be on its way when the arrays are laid out again.
  if (!status.ok()) device_->synchronize();
  return status;
}

Result<Logits> CudaModelRunner::compute_logits(std::span<const int32_t> rows) {
  PINFER_ASSIGN_OR_RETURN(const float* data, run_head(rows));
  return Logits{data, static_cast<int32_t>(rows.size()), model_->manifest().vocab_size};
}

Result<HiddenStates> CudaModelRunner::compute_hidden_states(std::span<const int32_t> rows) {
  PINFER_ASSIGN_OR_RETURN(const float* data, run_head(rows));
  return HiddenStates{data, static_cast<int32_t>(rows.size()), model_->manifest().hidden_size};
}

// What the head makes of some rows of the hidden states, in pinned memory.
Result<const float*> CudaModelRunner::run_head(std::span<const int32_t> rows) {
  if (rows.empty()) return static_cast<const float*>(nullptr);
  PINFER_RETURN_IF_ERROR(cuda_status(device_->make_current()));
  PINFER_RETURN_IF_ERROR(start_head(rows));
  PINFER_RETURN_IF_ERROR(wait());
  return reinterpret_cast<const float*>(results_.data());
}

Status CudaModelRunner::start_head(std::span<const int32_t> rows) {
  if (rows.empty()) return Status();
  PINFER_ASSIGN_OR_RETURN(AtenTensorHandle selected, select_rows(rows));
  PINFER_ASSIGN_OR_RETURN(AtenTensorHandle handle, model_->head->run({&selected, 1}));
  const TensorHandle output(model_->tensor_functions, handle);
  const Manifest& manifest = model_->manifest();
  const int64_t width = manifest.task == Task::EMBED ? manifest.hidden_size : manifest.vocab_size;
  const size_t bytes = rows.size() * static_cast<size_t>(width) * sizeof(float);
  if (results_.bytes() < bytes) {
    PINFER_ASSIGN_OR_RETURN(results_, CudaMemoryBlock::allocate_pinned(device_, bytes));
  }
  return cuda_status(device_->copy_to_host(results_.data(), output.data(), bytes));
}

// Rows that follow each other, as those of a decode step, are taken where they lie.
Result<AtenTensorHandle> CudaModelRunner::select_rows(std::span<const int32_t> rows) {
  const int64_t hidden = model_->manifest().hidden_size;
  const auto count = static_cast<int64_t>(rows.size());
  const auto run_length = [&](size_t begin) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    return end - begin;
  };
  const float* first = states_ + rows[0] * hidden;
  if (run_length(0) == rows.size() && reinterpret_cast<uintptr_t>(first) % kTensorAlignment == 0) {
    return wrap(first, {count, hidden}, AOTI_DTYPE_FLOAT32);
  }
  PINFER_ASSIGN_OR_RETURN(TensorHandle selected, empty({count, hidden}));
  auto* to = static_cast<float*>(selected.data());
  for (size_t begin = 0; begin < rows.size();) {
    const size_t length = run_length(begin);
    PINFER_RETURN_IF_ERROR(cuda_status(device_->copy_on_device(
        to + begin * static_cast<size_t>(hidden), states_ + rows[begin] * hidden,
        length * static_cast<size_t>(hidden) * sizeof(float))));
    begin += length;
  }
  return selected.release();
}

AtenTensorHandle CudaModelRunner::wrap(const void* data, std::initializer_list<int64_t> sizes,
                                       int32_t dtype) const {
  return wrap_contiguous(*model_->tensor_functions, const_cast<void*>(data), sizes, dtype,
                         AOTI_DEVICE_CUDA);
}

Result<TensorHandle> CudaModelRunner::empty(std::initializer_list<int64_t> sizes) const {
  const ContiguousShape shape(sizes);
  AtenTensorHandle handle = nullptr;
  if (model_->tensor_functions->empty_strided(shape.ndim, shape.sizes, shape.strides,
                                              AOTI_DTYPE_FLOAT32, AOTI_DEVICE_CUDA, 0,
                                              &handle) != 0) {
    return Status::resource_exhausted(pinfer_ops_last_error());
  }
  return TensorHandle(model_->tensor_functions, handle);
}

Status CudaModelRunner::kernel_status(int32_t error) const {
  return error == 0 ? Status() : Status::internal(device_->kernels().last_error());
}

}  // namespace pinfer
