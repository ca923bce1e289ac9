// A packed weight as linear, embedding and moe get it, and what they check about it.
#pragma once

#include <cstdint>

#include "csrc/ops.h"

namespace pinfer {

struct PackedWeight {
  const void* data;
  int32_t dtype;       // PINFER_FLOAT32, ...
  int64_t group_size;  // of int4; 0 elsewhere
};

// An error code, with the reason in the op's error text, unless there is such a format.
int32_t check_weight_format(const char* op, const PackedWeight& weight);

// Bytes of a weight with n outputs and k inputs. REQUIRES a format that passed the check.
int64_t packed_bytes(const PackedWeight& weight, int64_t n, int64_t k);

}  // namespace pinfer
