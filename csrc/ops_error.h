// How the C functions of ops.h report errors: a code, and the reason in a thread-local text.
#pragma once

#include <cstdint>
#include <new>

#include "csrc/ops.h"

namespace pinfer {

// Sets the text from a printf format and returns the code.
int32_t ops_error(int32_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Runs the body of an op: clears the text, turns a failed allocation into an error code.
template <typename F>
int32_t run_op(const char* name, F&& body) {
  ops_error(PINFER_OPS_OK, "%s", "");
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ops_error(PINFER_OPS_OUT_OF_MEMORY, "%s: no memory for scratch space", name);
  }
}

}  // namespace pinfer

// Returns INVALID_ARGUMENT with the formatted reason unless the condition holds.
#define PINFER_OPS_CHECK(condition, ...)                                                    \
  do {                                                                                      \
    if (!(condition)) return ::pinfer::ops_error(PINFER_OPS_INVALID_ARGUMENT, __VA_ARGS__); \
  } while (false)
