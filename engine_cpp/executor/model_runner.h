// The Executor of compiled models: embedding, rotary tables, every layer, the head.
#pragma once

#include <memory>
#include <vector>

#include "core/aligned_vector.h"
#include "core/huge_pages.h"
#include "core/kv_cache_config.h"
#include "csrc/threads/thread_pool.h"
#include "executor/executor.h"
#include "executor/input_batch.h"
#include "executor/kv_cache_memory.h"
#include "executor/model.h"
#include "executor/tensor_handle.h"

namespace pinfer {

class ModelRunner final : public Executor {
 public:
  // The pool is borrowed and must outlive the runner. huge_pages: of the model's weights, moved a
  // part at a time between steps.
  ModelRunner(std::unique_ptr<Model> model, const KVCacheConfig& kv_cache_config,
              std::unique_ptr<KVCacheMemory> kv_cache, ThreadPool* pool,
              HugePageCopy huge_pages = {});

  // The step in the order in which data flows: token ids -> x [T, hidden] -> layers -> hidden
  // states [T, hidden]; then wanted rows of those -> logits, or normed. Runs on the calling thread
  // and the pool, and is computed when execute_model() returns.
  Status prepare_inputs(const SchedulerOutput& scheduler_output) override;
  Status execute_model(const SchedulerOutput& scheduler_output) override;
  Result<Logits> sampled_logits() override;
  Result<Logits> compute_logits(std::span<const int32_t> rows) override;
  Result<HiddenStates> compute_hidden_states(std::span<const int32_t> rows) override;

 private:
  // Cosines and sines of the step's positions.
  struct RotaryTable {
    int64_t num_freqs = 0;
    AlignedVector<float> cos, sin;  // [T, num_freqs]
  };

  void move_weights();
  Status prepare_layer_inputs();
  Status embed();
  Result<AtenTensorHandle> run_layers();
  Result<const float*> run_head(std::span<const int32_t> rows);
  AtenTensorHandle wrap(void* data, std::initializer_list<int64_t> sizes, int32_t dtype) const;

  std::unique_ptr<Model> model_;
  std::vector<KVCachePlace> places_;  // by layer
  std::unique_ptr<KVCacheMemory> kv_cache_;
  ThreadPool* pool_;
  HugePageCopy huge_pages_;  // of the model's weights
  int64_t num_steps_ = 0;
  InputBatch batch_;
  AlignedVector<int32_t> token_ids_;        // [T]
  std::vector<int32_t> sampled_rows_;       // of the last step
  AlignedVector<float> x_, position_x_;     // [T, hidden]
  std::vector<RotaryTable> rotary_tables_;  // one for each entry of the manifest
  TensorHandle hidden_states_;              // [T, hidden]
  AlignedVector<float> selected_;           // [num_logits, hidden]
  TensorHandle head_output_;                // [num_logits, vocab], or hidden
};

}  // namespace pinfer
