// What compiled code takes for granted about its inputs, checked before each call: generated code
// reads past rank, dtype, strides and alignment without a look.
#pragma once

#include <span>

#include "bundle/manifest.h"
#include "core/status.h"
#include "csrc/shim/provider.h"

namespace pinfer {

// INTERNAL naming the artifact, the input, what is expected and what was found unless every input
// is there, has the entry's dtype and rank, its fixed sizes, dense (row-major) strides and an
// address that is a multiple of kTensorAlignment. The handles stay the caller's.
// REQUIRES: as many inputs as entry.inputs.
Status check_part_inputs(const ArtifactEntry& entry, std::span<const AtenTensorHandle> inputs,
                         const TensorFunctions& functions);

}  // namespace pinfer
