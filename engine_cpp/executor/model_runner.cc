#include "executor/model_runner.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "csrc/ops.h"

namespace pinfer {
namespace {

// Up to this many tokens the compiled loops (norms, rotary, activations) take less time than
// waking the other threads would.
constexpr int64_t kSerialRegionTokens = 8;

// Moving the weights takes as long as it saves in a few hundred steps: begun after as many, it
// never costs much more than it could have saved (measured: docs/performance.md).
constexpr int64_t kStepsBeforeMoving = 256;
constexpr size_t kStepsToMoveWeights = 32;

Status op_status(int32_t error) {
  return error == 0 ? Status() : Status::internal(pinfer_ops_last_error());
}

}  // namespace

ModelRunner::ModelRunner(std::unique_ptr<Model> model, const KVCacheConfig& kv_cache_config,
                         std::unique_ptr<KVCacheMemory> kv_cache, ThreadPool* pool,
                         HugePageCopy huge_pages)
    : model_(std::move(model)),
      places_(kv_cache_config.places()),
      kv_cache_(std::move(kv_cache)),
      pool_(pool),
      huge_pages_(std::move(huge_pages)),
      batch_(kv_cache_config.block_size(), kv_cache_config.num_groups()) {}

Status ModelRunner::prepare_inputs(const SchedulerOutput& scheduler_output) {
  batch_.update(scheduler_output);
  return Status();
}

Status ModelRunner::execute_model(const SchedulerOutput& scheduler_output) {
  if (++num_steps_ > kStepsBeforeMoving) move_weights();
  token_ids_.resize(static_cast<size_t>(batch_.num_tokens()));
  InputBatch::copy_token_ids(scheduler_output, token_ids_.data());
  sampled_rows_ = scheduler_output.sampled_rows();
  hidden_states_ = TensorHandle();
  if (batch_.num_tokens() == 0) return Status();  // a step that only reports ended requests
  const ThreadPool::Scope scope(pool_);
  pool_->set_serial_regions(batch_.num_tokens() <= kSerialRegionTokens);
  PINFER_RETURN_IF_ERROR(prepare_layer_inputs());
  PINFER_ASSIGN_OR_RETURN(AtenTensorHandle x, run_layers());
  hidden_states_ = TensorHandle(model_->tensor_functions, x);
  return Status();
}

// A part of the weights for each step, so that none takes much longer than the others.
void ModelRunner::move_weights() {
  if (huge_pages_.is_done()) return;
  const auto threads = static_cast<size_t>(pool_->num_threads());
  const size_t share = (huge_pages_.num_pages() + kStepsToMoveWeights - 1) / kStepsToMoveWeights;
  huge_pages_.advance((share + threads - 1) / threads * threads,
                      [this](size_t count, const std::function<void(size_t)>& copy) {
                        pool_->parallel_for(static_cast<int64_t>(count), 1,
                                            [&](int64_t begin, int64_t end) {
                                              for (int64_t i = begin; i < end; ++i) {
                                                copy(static_cast<size_t>(i));
                                              }
                                            });
                      });
}

Status ModelRunner::prepare_layer_inputs() {
  const Manifest& manifest = model_->manifest();
  const int64_t num_tokens = batch_.num_tokens();
  PINFER_RETURN_IF_ERROR(embed());
  rotary_tables_.resize(manifest.rotaries.size());
  for (size_t i = 0; i < rotary_tables_.size(); ++i) {
    RotaryTable& table = rotary_tables_[i];
    const WeightTensor& inv_freq = *model_->inv_freqs[i];
    table.num_freqs = inv_freq.shape[0];
    table.cos.resize(static_cast<size_t>(num_tokens * table.num_freqs));
    table.sin.resize(table.cos.size());
    PINFER_RETURN_IF_ERROR(op_status(pinfer_rotary_embedding(
        batch_.positions.data(), num_tokens, static_cast<const float*>(inv_freq.data),
        table.num_freqs, manifest.rotaries[i].attention_scaling, table.cos.data(),
        table.sin.data())));
  }
  return Status();
}

// x = (rows of the embedding + rows of the learned positions) * scale.
Status ModelRunner::embed() {
  const Manifest& manifest = model_->manifest();
  const int64_t num_tokens = batch_.num_tokens();
  const auto look_up = [&](const WeightTensor& table, int64_t num_rows,
                           const AlignedVector<int32_t>& rows, float* out) {
    return op_status(pinfer_embedding(rows.data(), num_tokens, table.data, table.dtype,
                                      manifest.embedding_format.group_size, num_rows,
                                      manifest.hidden_size, out));
  };
  x_.resize(static_cast<size_t>(num_tokens * manifest.hidden_size));
  PINFER_RETURN_IF_ERROR(look_up(*model_->embedding, manifest.vocab_size, token_ids_, x_.data()));
  if (model_->position_embedding != nullptr) {
    position_x_.resize(x_.size());
    PINFER_RETURN_IF_ERROR(look_up(*model_->position_embedding, manifest.max_model_len,
                                   batch_.positions, position_x_.data()));
    for (size_t i = 0; i < x_.size(); ++i) x_[i] += position_x_[i];
  }
  if (manifest.embedding_scale != 1.0) {
    for (float& value : x_) value *= static_cast<float>(manifest.embedding_scale);
  }
  return Status();
}

// Handles are consumed by the part that takes them, so each layer gets new ones over the same
// arrays; a handle is a small struct from a free list. The order of the inputs is that of
// decoder_layer in export/parts.py. K is stored transposed: scores of 16 tokens are lanes.
Result<AtenTensorHandle> ModelRunner::run_layers() {
  const Manifest& manifest = model_->manifest();
  const int64_t t = batch_.num_tokens(), s = batch_.num_seqs();
  const KVCacheShape& cache = kv_cache_->shape();
  AtenTensorHandle x = wrap(x_.data(), {t, manifest.hidden_size}, AOTI_DTYPE_FLOAT32);
  for (size_t i = 0; i < model_->layers.size(); ++i) {
    RotaryTable& rotary = rotary_tables_[static_cast<size_t>(manifest.layers[i].rotary)];
    const KVCachePlace& place = places_[i];
    GroupInputs& group = batch_.groups[static_cast<size_t>(place.group_id)];
    AtenTensorHandle inputs[] = {
        x,
        wrap(rotary.cos.data(), {t, rotary.num_freqs}, AOTI_DTYPE_FLOAT32),
        wrap(rotary.sin.data(), {t, rotary.num_freqs}, AOTI_DTYPE_FLOAT32),
        wrap(kv_cache_->k(place.tensor_id),
             {cache.num_blocks, cache.num_kv_heads, cache.token_width(), cache.block_size},
             cache.dtype),
        wrap(kv_cache_->v(place.tensor_id),
             {cache.num_blocks, cache.num_kv_heads, cache.block_size, cache.token_width()},
             cache.dtype),
        wrap(group.slot_mapping.data(), {t}, AOTI_DTYPE_INT64),
        wrap(group.block_table.data(), {s, batch_.max_blocks()}, AOTI_DTYPE_INT32),
        wrap(batch_.seq_lens.data(), {s}, AOTI_DTYPE_INT32),
        wrap(batch_.query_start_loc.data(), {s + 1}, AOTI_DTYPE_INT32),
    };
    Result<AtenTensorHandle> y = model_->layers[i]->run(inputs);
    if (!y.ok()) {
      return Status::internal("layer " + std::to_string(i) + ": " + y.status().message());
    }
    x = y.value();
  }
  return x;
}

Result<Logits> ModelRunner::sampled_logits() {
  if (model_->manifest().task == Task::EMBED) return Logits();
  return compute_logits(sampled_rows_);
}

Result<Logits> ModelRunner::compute_logits(std::span<const int32_t> rows) {
  PINFER_ASSIGN_OR_RETURN(const float* data, run_head(rows));
  return Logits{data, static_cast<int32_t>(rows.size()), model_->manifest().vocab_size};
}

Result<HiddenStates> ModelRunner::compute_hidden_states(std::span<const int32_t> rows) {
  PINFER_ASSIGN_OR_RETURN(const float* data, run_head(rows));
  return HiddenStates{data, static_cast<int32_t>(rows.size()), model_->manifest().hidden_size};
}

// What the head makes of some rows of the hidden states.
Result<const float*> ModelRunner::run_head(std::span<const int32_t> rows) {
  if (rows.empty()) return static_cast<const float*>(nullptr);
  const ThreadPool::Scope scope(pool_);
  const auto num_logits = static_cast<int64_t>(rows.size());
  const int64_t hidden = model_->manifest().hidden_size;
  const auto* states = static_cast<const float*>(hidden_states_.data());
  selected_.resize(static_cast<size_t>(num_logits * hidden));
  for (int64_t i = 0; i < num_logits; ++i) {
    std::copy_n(states + rows[static_cast<size_t>(i)] * hidden, hidden,
                selected_.begin() + i * hidden);
  }
  AtenTensorHandle inputs[] = {wrap(selected_.data(), {num_logits, hidden}, AOTI_DTYPE_FLOAT32)};
  PINFER_ASSIGN_OR_RETURN(AtenTensorHandle output, model_->head->run(inputs));
  head_output_ = TensorHandle(model_->tensor_functions, output);
  return static_cast<const float*>(head_output_.data());
}

AtenTensorHandle ModelRunner::wrap(void* data, std::initializer_list<int64_t> sizes,
                                   int32_t dtype) const {
  assert(reinterpret_cast<uintptr_t>(data) % kTensorAlignment == 0);
  return wrap_contiguous(*model_->tensor_functions, data, sizes, dtype, AOTI_DEVICE_CPU);
}

}  // namespace pinfer
