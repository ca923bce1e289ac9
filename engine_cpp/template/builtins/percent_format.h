// Python's `"..." % values`.
#pragma once

#include "template/value/value.h"

namespace pinfer::jinja {

// REQUIRES format.is_string(). `values` is a tuple, a dict (for `%(name)s`) or one value.
Value percent_format(Heap& heap, const Value& format, const Value& values);

}  // namespace pinfer::jinja
