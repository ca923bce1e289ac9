#include "executor/input_batch.h"

#include <algorithm>

namespace pinfer {

void InputBatch::update(const SchedulerOutput& scheduler_output) {
  for (const std::string& id : scheduler_output.finished_request_ids) block_ids_.erase(id);
  for (const std::string& id : scheduler_output.preempted_request_ids) block_ids_.erase(id);

  positions.clear();
  seq_lens.clear();
  query_start_loc.assign(1, 0);
  for (GroupInputs& group : groups) group.slot_mapping.clear();
  std::vector<const BlockIds*> tables;
  max_blocks_ = 1;
  for (const ScheduledRequest& request : scheduler_output.scheduled_requests) {
    BlockIds& block_ids = block_ids_[request.request_id];
    if (request.kind != ScheduledKind::RUNNING) block_ids.clear();
    block_ids.resize(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      const std::vector<int32_t>& added = request.new_block_ids[g];
      block_ids[g].insert(block_ids[g].end(), added.begin(), added.end());
    }
    add(request);
    map_slots(request, block_ids);
    tables.push_back(&block_ids);
    max_blocks_ = std::max(max_blocks_, static_cast<int64_t>(block_ids.front().size()));
  }
  fill_block_tables(tables);
}

void InputBatch::copy_token_ids(const SchedulerOutput& scheduler_output, int32_t* token_ids) {
  for (const ScheduledRequest& request : scheduler_output.scheduled_requests) {
    token_ids = std::copy(request.token_ids.begin(), request.token_ids.end(), token_ids);
  }
}

void InputBatch::add(const ScheduledRequest& request) {
  const int32_t end = request.num_computed_tokens + request.num_scheduled_tokens();
  for (int32_t position = request.num_computed_tokens; position < end; ++position) {
    positions.push_back(position);
  }
  seq_lens.push_back(end);
  query_start_loc.push_back(static_cast<int32_t>(positions.size()));
}

void InputBatch::map_slots(const ScheduledRequest& request, const BlockIds& block_ids) {
  const int32_t begin = request.num_computed_tokens;
  const int32_t end = begin + request.num_scheduled_tokens();
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int32_t position = begin; position < end; ++position) {
      const int64_t block_id = block_ids[g][static_cast<size_t>(position / block_size_)];
      groups[g].slot_mapping.push_back(block_id * block_size_ + position % block_size_);
    }
  }
}

void InputBatch::fill_block_tables(const std::vector<const BlockIds*>& tables) {
  for (size_t g = 0; g < groups.size(); ++g) {
    AlignedVector<int32_t>& block_table = groups[g].block_table;
    block_table.assign(tables.size() * static_cast<size_t>(max_blocks_), 0);
    for (size_t i = 0; i < tables.size(); ++i) {
      const std::vector<int32_t>& row = (*tables[i])[g];
      std::copy(row.begin(), row.end(),
                block_table.begin() + static_cast<int64_t>(i) * max_blocks_);
    }
  }
}

}  // namespace pinfer
