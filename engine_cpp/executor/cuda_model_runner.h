// The Executor of models that are compiled for CUDA: what ModelRunner is on the CPU. The step's
// arrays go to the device in one copy; logits, or hidden states, come back in one. All that a step
// takes is put on the stream at once: the copy, the layers, the head, the copy of logits. While the
// device is at it, the arrays of the next step are laid out.
//
// A decode step, where every request computes one token, is recorded into a CUDA graph when its
// sizes come a second time, and started as one from then on.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/kv_cache_config.h"
#include "executor/cuda_graphs.h"
#include "executor/cuda_kv_cache.h"
#include "executor/cuda_memory_block.h"
#include "executor/cuda_step_inputs.h"
#include "executor/executor.h"
#include "executor/input_batch.h"
#include "executor/model.h"
#include "executor/tensor_handle.h"

namespace pinfer {

struct CudaRunnerOptions {
  int64_t max_num_seqs = 0, max_num_batched_tokens = 0, max_model_len = 0;
  int64_t max_graph_seqs = 0;  // decode steps of more requests are not recorded
};

class CudaModelRunner final : public Executor {
 public:
  // Copies the weights and finds out what the largest step needs: FAILED_PRECONDITION naming both
  // architectures if the bundle has no code for the device, RESOURCE_EXHAUSTED with numbers if its
  // memory is too small. set_cache() must follow before steps.
  static Result<std::unique_ptr<CudaModelRunner>> create(std::shared_ptr<CudaDevice> device,
                                                         std::shared_ptr<const Bundle> bundle,
                                                         const KVCacheConfig& kv_cache_config,
                                                         const CudaRunnerOptions& options);
  ~CudaModelRunner() override;

  // Of the model's cache, with no blocks yet.
  const CudaKVCacheShape& cache_shape() const { return cache_shape_; }
  // Runs the largest step once, so that its buffers are there before the rest of the memory becomes
  // the cache. Needs a few cache blocks meanwhile.
  Status measure();
  void set_cache(std::unique_ptr<CudaKVCache> cache) { cache_ = std::move(cache); }

  Status prepare_inputs(const SchedulerOutput& scheduler_output) override;
  Status execute_model(const SchedulerOutput& scheduler_output) override;
  Result<Logits> sampled_logits() override;
  Result<Logits> compute_logits(std::span<const int32_t> rows) override;
  Result<HiddenStates> compute_hidden_states(std::span<const int32_t> rows) override;

  int64_t num_graphs() const { return graphs_.size(); }

 private:
  CudaModelRunner(std::shared_ptr<CudaDevice> device, const KVCacheConfig& kv_cache_config,
                  const CudaRunnerOptions& options);
  Status load(std::shared_ptr<const Bundle> bundle, const KVCacheConfig& kv_cache_config);
  bool is_decode_step() const;
  Status start(const SchedulerOutput& scheduler_output);
  Status run_decode_graph();
  Status fill_inputs(int64_t num_tokens, int64_t num_seqs, int64_t max_blocks);
  Status fill_rotary_tables();
  // The step that is laid out, from ids to hidden states.
  Result<TensorHandle> run_step();
  Result<TensorHandle> embed();
  Result<AtenTensorHandle> run_layer(size_t layer, AtenTensorHandle x);
  Status wait();
  Status start_head(std::span<const int32_t> rows);
  Result<const float*> run_head(std::span<const int32_t> rows);
  Result<AtenTensorHandle> select_rows(std::span<const int32_t> rows);
  AtenTensorHandle wrap(const void* data, std::initializer_list<int64_t> sizes,
                        int32_t dtype) const;
  Result<TensorHandle> empty(std::initializer_list<int64_t> sizes) const;
  Status kernel_status(int32_t error) const;

  // In this order: what stands above outlives what stands below.
  std::shared_ptr<CudaDevice> device_;
  CudaRunnerOptions options_;
  CudaMemoryBlock weights_;
  std::unique_ptr<Model> model_;
  std::vector<KVCachePlace> places_;  // by layer
  CudaKVCacheShape cache_shape_;
  std::unique_ptr<CudaKVCache> cache_;
  std::unique_ptr<CudaStepInputs> inputs_;
  InputBatch batch_;
  CudaMemoryBlock graph_states_;  // [largest graph, hidden], of every graph
  CudaGraphs graphs_;
  TensorHandle hidden_states_;     // [T, hidden] of a step that was no graph
  const float* states_ = nullptr;  // of the last step, on the device
  int32_t num_sampled_rows_ = 0;   // of the last step
  CudaMemoryBlock results_;        // pinned: what the head's output is copied to
};

}  // namespace pinfer
