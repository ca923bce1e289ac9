// The arrays of one step, flat over all requests: what the model's parts take in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/aligned_vector.h"
#include "core/scheduler_output.h"

namespace pinfer {

// What differs between groups of layers. T tokens, S requests, M blocks in the longest table of the
// step.
struct GroupInputs {
  AlignedVector<int64_t> slot_mapping;  // [T], block id * block size + offset
  AlignedVector<int32_t> block_table;   // [S, M], rows filled up with the null block 0
};

// Keeps each running request's block tables from step to step, since the scheduler only tells what
// is new. A table goes on naming blocks that have left the window, which no row reads.
class InputBatch {
 public:
  explicit InputBatch(int32_t block_size, int32_t num_groups = 1)
      : groups(static_cast<size_t>(num_groups)), block_size_(block_size) {}

  // Takes in a step. Preempted and finished requests are forgotten, then the arrays are rebuilt,
  // but for the token ids, which may be known later than the rest.
  void update(const SchedulerOutput& scheduler_output);
  // The token ids of the same step, to an array of num_tokens().
  static void copy_token_ids(const SchedulerOutput& scheduler_output, int32_t* token_ids);

  AlignedVector<int32_t> positions;        // [T]
  AlignedVector<int32_t> seq_lens;         // [S], context length after this step
  AlignedVector<int32_t> query_start_loc;  // [S + 1]
  std::vector<GroupInputs> groups;

  int64_t num_tokens() const { return static_cast<int64_t>(positions.size()); }
  int64_t num_seqs() const { return static_cast<int64_t>(seq_lens.size()); }
  int64_t max_blocks() const { return max_blocks_; }

 private:
  using BlockIds = std::vector<std::vector<int32_t>>;  // by group

  void add(const ScheduledRequest& request);
  void map_slots(const ScheduledRequest& request, const BlockIds& block_ids);
  void fill_block_tables(const std::vector<const BlockIds*>& tables);

  int32_t block_size_;
  int64_t max_blocks_ = 0;
  std::unordered_map<std::string, BlockIds> block_ids_;  // by request id
};

}  // namespace pinfer
