// Entries for the exporter and the project's own tests; not part of the interface.
#include <cstring>

#include "csrc/ops.h"
#include "csrc/shim/provider.h"
#include "scheduler/replay.h"

extern "C" {

// replay_trace_json() of scheduler/replay.h. The caller frees the text with free().
PINFER_API char* pinfer_testing_replay(const char* trace_json) {
  return strdup(pinfer::replay_trace_json(trace_json).c_str());
}

// The native provider's function of this name, NULL if it has none. The exporter runs with them
// what it has compiled.
PINFER_API void* pinfer_native_symbol(const char* name) {
  return pinfer::native_provider().find(name);
}

// The same of the provider for CUDA. What is found must not be called without a device.
PINFER_API void* pinfer_cuda_symbol(const char* name) { return pinfer::cuda_provider().find(name); }

}  // extern "C"
