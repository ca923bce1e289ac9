#include "executor/input_batch.h"

#include <algorithm>

namespace pinfer {

void InputBatch::update(const SchedulerOutput& scheduler_output) {
  for (const std::string& id : scheduler_output.finished_request_ids) block_ids_.erase(id);
  for (const std::string& id : scheduler_output.preempted_request_ids) block_ids_.erase(id);

  token_ids.clear();
  positions.clear();
  slot_mapping.clear();
  seq_lens.clear();
  query_start_loc.assign(1, 0);
  std::vector<const std::vector<int32_t>*> tables;
  max_blocks_ = 1;
  for (const ScheduledRequest& request : scheduler_output.scheduled_requests) {
    std::vector<int32_t>& block_ids = block_ids_[request.request_id];
    if (request.kind != ScheduledKind::RUNNING) block_ids.clear();
    block_ids.insert(block_ids.end(), request.new_block_ids.begin(), request.new_block_ids.end());
    add(request, block_ids);
    tables.push_back(&block_ids);
    max_blocks_ = std::max(max_blocks_, static_cast<int64_t>(block_ids.size()));
  }
  block_table.assign(tables.size() * static_cast<size_t>(max_blocks_), 0);
  for (size_t i = 0; i < tables.size(); ++i) {
    std::copy(tables[i]->begin(), tables[i]->end(),
              block_table.begin() + static_cast<int64_t>(i) * max_blocks_);
  }
}

void InputBatch::add(const ScheduledRequest& request, const std::vector<int32_t>& block_ids) {
  int32_t position = request.num_computed_tokens;
  for (const int32_t token_id : request.token_ids) {
    const int64_t block_id = block_ids[static_cast<size_t>(position / block_size_)];
    token_ids.push_back(token_id);
    positions.push_back(position);
    slot_mapping.push_back(block_id * block_size_ + position % block_size_);
    ++position;
  }
  seq_lens.push_back(position);
  query_start_loc.push_back(static_cast<int32_t>(token_ids.size()));
}

}  // namespace pinfer
