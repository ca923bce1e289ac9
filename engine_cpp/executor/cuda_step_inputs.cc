#include "executor/cuda_step_inputs.h"

#include "core/aligned_vector.h"

namespace pinfer {

Result<std::unique_ptr<CudaStepInputs>> CudaStepInputs::create(std::shared_ptr<CudaDevice> device,
                                                               const CudaStepLimits& limits) {
  std::unique_ptr<CudaStepInputs> inputs(new CudaStepInputs(device, limits));
  inputs->lay_out(limits.max_tokens, limits.max_seqs, limits.max_blocks);
  const size_t bytes = inputs->used_;
  for (CudaMemoryBlock& pinned : inputs->pinned_) {
    PINFER_ASSIGN_OR_RETURN(pinned, CudaMemoryBlock::allocate_pinned(device, bytes));
  }
  PINFER_ASSIGN_OR_RETURN(inputs->memory_,
                          CudaMemoryBlock::allocate(device, bytes, "a step's arrays"));
  return inputs;
}

void CudaStepInputs::lay_out(int64_t num_tokens, int64_t num_seqs, int64_t max_blocks) {
  current_ = 1 - current_;
  num_tokens_ = num_tokens;
  num_seqs_ = num_seqs;
  max_blocks_ = max_blocks;
  used_ = 0;
  const auto tokens = static_cast<size_t>(num_tokens), seqs = static_cast<size_t>(num_seqs);
  token_ids_ = place(tokens * sizeof(int32_t));
  positions_ = place(tokens * sizeof(int32_t));
  seq_lens_ = place(seqs * sizeof(int32_t));
  query_start_loc_ = place((seqs + 1) * sizeof(int32_t));
  slot_mappings_.clear();
  block_tables_.clear();
  for (int32_t i = 0; i < limits_.num_groups; ++i) {
    slot_mappings_.push_back(place(tokens * sizeof(int64_t)));
    block_tables_.push_back(place(seqs * static_cast<size_t>(max_blocks) * sizeof(int32_t)));
  }
  cosines_.clear();
  sines_.clear();
  for (const int64_t num_freqs : limits_.num_freqs) {
    const size_t bytes = tokens * static_cast<size_t>(num_freqs) * sizeof(float);
    cosines_.push_back(place(bytes));
    sines_.push_back(place(bytes));
  }
}

size_t CudaStepInputs::place(size_t bytes) {
  const size_t offset = used_;
  used_ += (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  return offset;
}

Status CudaStepInputs::copy_to_device() {
  return cuda_status(device_->copy_to_device(memory_.data(), pinned_[current_].data(), used_));
}

}  // namespace pinfer
