// Drives a Scheduler through a recorded workload and writes down every decision: for the tests that
// compare the scheduler with recorded traces and with its Python twin.
#pragma once

#include <string>
#include <string_view>

namespace pinfer {

// trace: a JSON object in the form of the recorded traces (tests/data/scheduler_traces/README.md):
// `config`, `requests`, and `steps` (as many are run) or `max_steps` (at most so many are run,
// until all requests have ended). What a configuration or a request leaves out has its default.
// Beyond the recorded traces a request may have
//   prompt_ranges        [[first, count], ...] instead of prompt_token_ids
//   sampled_token_ids    left out: 1000, 1001, ...
//   cache_salt, eos_token_ids (instead of eos_token_id)
//   fails_at             index of the output token whose logits are not finite
// the configuration layer_windows (of each layer; by default one layer with full attention), and
// the trace reset_prefix_cache_steps. With async_scheduling in the configuration a step says what
// was scheduled in it, and what ended by the tokens of the step before.
//
// Returns a JSON object with `steps`, `final_free_block_ids`, `final_cached_block_ids` in the form
// of the traces, `final_token_ids` (of each request, those sampled) and `final_stats`; or `error`
// if trace cannot be read. A step has `refused` if a request was refused, `reset_prefix_cache`
// (whether it was done) if that was asked for. Where the layers are in several groups,
// new_block_ids holds a list for each.
std::string replay_trace_json(std::string_view trace);

}  // namespace pinfer
