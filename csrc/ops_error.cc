#include "csrc/ops_error.h"

#include <cstdarg>
#include <cstdio>

namespace pinfer {

namespace {
thread_local char last_error[512] = "";
}  // namespace

int32_t ops_error(int32_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof(last_error), format, arguments);
  va_end(arguments);
  return code;
}

}  // namespace pinfer

const char* pinfer_ops_last_error(void) { return pinfer::last_error; }
