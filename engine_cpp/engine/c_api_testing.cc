// Entries for the project's own tests (tests/parity); not part of the interface.
#include <cstring>

#include "csrc/ops.h"
#include "csrc/shim/provider.h"
#include "scheduler/replay.h"

extern "C" {

// replay_trace_json() of scheduler/replay.h. The caller frees the text with free().
PINFER_API char* pinfer_testing_replay(const char* trace_json) {
  return strdup(pinfer::replay_trace_json(trace_json).c_str());
}

// 1 if the native provider has a function of this name, else 0.
PINFER_API int32_t pinfer_testing_native_symbol(const char* name) {
  return pinfer::native_provider().find(name) != nullptr ? 1 : 0;
}

}  // extern "C"
