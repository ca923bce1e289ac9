// logits_tool BUNDLE THREADS NUM_BLOCKS [WINDOW...]: one step a line on stdin, its logits on
// stdout. The windows, one a layer, say which layers are in one group; by default all are.
//
// in:  {"scheduled": [{"id", "kind": "new"|"resumed"|"running", "num_computed_tokens", "token_ids",
//       "new_block_ids" (by group), "samples"}], "preempted": [...], "finished": [...], "rows":
//       [...]}
// out: the number of rows and of values in a row, a line break, then the values, float32.
// Without "rows", the rows of the requests that sample.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "executor/model_runner.h"

namespace {

using pinfer::Result;
using pinfer::Status;

pinfer::SchedulerOutput read_step(const nlohmann::json& line) {
  pinfer::SchedulerOutput step;
  for (const auto& item : line["scheduled"]) {
    pinfer::ScheduledRequest& request = step.scheduled_requests.emplace_back();
    request.request_id = item["id"];
    request.kind = item["kind"] == "new"       ? pinfer::ScheduledKind::NEW
                   : item["kind"] == "resumed" ? pinfer::ScheduledKind::RESUMED
                                               : pinfer::ScheduledKind::RUNNING;
    request.num_computed_tokens = item["num_computed_tokens"];
    request.token_ids = item["token_ids"].get<std::vector<int32_t>>();
    request.new_block_ids = item["new_block_ids"].get<std::vector<std::vector<int32_t>>>();
    request.samples = item["samples"];
  }
  step.preempted_request_ids = line.value("preempted", std::vector<std::string>());
  step.finished_request_ids = line.value("finished", std::vector<std::string>());
  return step;
}

void print_logits(const pinfer::Logits& logits) {
  std::printf("%d %d\n", logits.num_rows, logits.vocab_size);
  const auto count = static_cast<size_t>(logits.num_rows) * static_cast<size_t>(logits.vocab_size);
  std::fwrite(logits.data, sizeof(float), count, stdout);
  std::fflush(stdout);
}

Status run(const std::string& path, int threads, int64_t num_blocks,
           std::vector<int32_t> layer_windows) {
  PINFER_ASSIGN_OR_RETURN(std::shared_ptr<const pinfer::Bundle> bundle,
                          pinfer::Bundle::open(path, pinfer::VerifyLevel::SIZES_AND_CODE));
  const pinfer::Manifest& manifest = bundle->manifest();
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<pinfer::Model> model,
                          pinfer::Model::load(bundle, pinfer::native_provider()));
  layer_windows.resize(model->layers.size());
  const pinfer::KVCacheConfig config =
      pinfer::make_kv_cache_config(layer_windows, manifest.block_size, manifest.max_model_len);
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<pinfer::KVCacheMemory> memory,
                          pinfer::KVCacheMemory::create(
                              {config.num_tensors(), num_blocks, manifest.num_kv_heads,
                               manifest.head_dim, manifest.block_size, manifest.kv_cache_dtype}));
  // What a recycled block may hold must never matter.
  const size_t bytes = static_cast<size_t>(memory->shape().bytes_per_block() * num_blocks) /
                       static_cast<size_t>(2 * config.num_tensors());
  for (int32_t tensor = 0; tensor < config.num_tensors(); ++tensor) {
    std::memset(memory->k(tensor), 0xff, bytes);
    std::memset(memory->v(tensor), 0xff, bytes);
  }
  pinfer::ThreadPool pool(threads);
  pinfer::ModelRunner runner(std::move(model), config, std::move(memory), &pool);
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto json = nlohmann::json::parse(line);
    const pinfer::SchedulerOutput step = read_step(json);
    PINFER_RETURN_IF_ERROR(runner.prepare_inputs(step));
    PINFER_RETURN_IF_ERROR(runner.execute_model(step));
    PINFER_ASSIGN_OR_RETURN(const pinfer::Logits logits,
                            runner.compute_logits(json.value("rows", step.sampled_rows())));
    print_logits(logits);
  }
  return Status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: logits_tool BUNDLE THREADS NUM_BLOCKS [WINDOW...]\n");
    return 2;
  }
  std::vector<int32_t> layer_windows;
  for (int i = 4; i < argc; ++i) layer_windows.push_back(std::atoi(argv[i]));
  const Status status =
      run(argv[1], std::atoi(argv[2]), std::atoll(argv[3]), std::move(layer_windows));
  if (!status.ok()) std::fprintf(stderr, "logits_tool: error: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
