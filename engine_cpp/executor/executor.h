// Computes one step: what the scheduler decided in, logits or hidden states of the wanted tokens
// out. The scheduler's side and the executor's meet only here, in value structs.
#pragma once

#include <cstdint>
#include <span>

#include "core/scheduler_output.h"
#include "core/status.h"

namespace pinfer {

// [num_rows, vocab_size], float32. The memory belongs to the executor and is valid until its next
// call.
struct Logits {
  const float* data = nullptr;
  int32_t num_rows = 0;
  int32_t vocab_size = 0;

  std::span<const float> row(int32_t i) const {
    return {data + static_cast<int64_t>(i) * vocab_size, static_cast<size_t>(vocab_size)};
  }
};

// [num_rows, hidden_size], float32, after the final norm. As Logits.
struct HiddenStates {
  const float* data = nullptr;
  int32_t num_rows = 0;
  int32_t hidden_size = 0;

  std::span<const float> row(int32_t i) const {
    return {data + static_cast<int64_t>(i) * hidden_size, static_cast<size_t>(hidden_size)};
  }
};

// Used by one thread (the engine's).
class Executor {
 public:
  virtual ~Executor() = default;

  // Takes in the next step, all but its token ids. The one before may still be computed, and asked
  // for what it has computed. An error fails the step, as one of execute_model() does.
  virtual Status prepare_inputs(const SchedulerOutput& scheduler_output) = 0;

  // Runs the layers over the tokens of the step that was prepared: their keys and values are in the
  // cache afterwards; and the head, of a model that generates, over the rows that sample. A device
  // may be at it still when this returns. INTERNAL when the step cannot be computed; its requests
  // cannot go on then. REQUIRES: the step before has been waited for; there are no placeholders.
  virtual Status execute_model(const SchedulerOutput& scheduler_output) = 0;

  // Waits for the step that runs. Logits of its rows that sample, in schedule order; none of a
  // model that embeds.
  virtual Result<Logits> sampled_logits() = 0;

  // Logits of some of the tokens that the last execute_model() ran over, by their rows in the
  // step's flat order. May be called several times, so that many rows need not be held at once.
  // REQUIRES: the model generates.
  virtual Result<Logits> compute_logits(std::span<const int32_t> rows) = 0;

  // The same of hidden states. REQUIRES: the model embeds.
  virtual Result<HiddenStates> compute_hidden_states(std::span<const int32_t> rows) = 0;
};

}  // namespace pinfer
