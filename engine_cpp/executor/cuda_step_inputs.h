// The arrays of a step in one piece of pinned memory, and where they are on the device: one copy
// takes all of them there. There are two pieces of pinned memory, so that a step can be laid out
// while the one before it is copied.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/status.h"
#include "executor/cuda_memory_block.h"
#include "executor/input_batch.h"

namespace pinfer {

// The most that a step can hold.
struct CudaStepLimits {
  int64_t max_tokens = 0, max_seqs = 0, max_blocks = 0;
  int32_t num_groups = 0;
  std::vector<int64_t> num_freqs;  // by rotary table
};

class CudaStepInputs {
 public:
  static Result<std::unique_ptr<CudaStepInputs>> create(std::shared_ptr<CudaDevice> device,
                                                        const CudaStepLimits& limits);

  // Lays out a step of so many tokens, requests and blocks of the longest table. The same sizes
  // give the same places. REQUIRES: within the limits; the copy before the last has ended.
  void lay_out(int64_t num_tokens, int64_t num_seqs, int64_t max_blocks);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_seqs() const { return num_seqs_; }
  int64_t max_blocks() const { return max_blocks_; }

  // An array in pinned memory, to be filled, and the same on the device.
  template <typename T>
  struct Array {
    T* host;
    T* device;
  };
  Array<int32_t> token_ids() const { return at<int32_t>(token_ids_); }
  Array<int32_t> positions() const { return at<int32_t>(positions_); }
  Array<int32_t> seq_lens() const { return at<int32_t>(seq_lens_); }
  Array<int32_t> query_start_loc() const { return at<int32_t>(query_start_loc_); }
  Array<int64_t> slot_mapping(size_t group) const { return at<int64_t>(slot_mappings_[group]); }
  Array<int32_t> block_table(size_t group) const { return at<int32_t>(block_tables_[group]); }
  Array<float> cos(size_t rotary) const { return at<float>(cosines_[rotary]); }
  Array<float> sin(size_t rotary) const { return at<float>(sines_[rotary]); }

  // In the stream's order.
  Status copy_to_device();

 private:
  CudaStepInputs(std::shared_ptr<CudaDevice> device, const CudaStepLimits& limits)
      : device_(std::move(device)), limits_(limits) {}
  size_t place(size_t bytes);

  template <typename T>
  Array<T> at(size_t offset) const {
    return {reinterpret_cast<T*>(pinned_[current_].data() + offset),
            reinterpret_cast<T*>(memory_.data() + offset)};
  }

  std::shared_ptr<CudaDevice> device_;
  CudaStepLimits limits_;
  std::array<CudaMemoryBlock, 2> pinned_;  // in turn
  size_t current_ = 0;
  CudaMemoryBlock memory_;
  int64_t num_tokens_ = 0, num_seqs_ = 0, max_blocks_ = 0;
  size_t used_ = 0;
  size_t token_ids_ = 0, positions_ = 0, seq_lens_ = 0, query_start_loc_ = 0;
  std::vector<size_t> slot_mappings_, block_tables_, cosines_, sines_;
};

}  // namespace pinfer
