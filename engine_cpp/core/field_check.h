// Range checks of configuration fields, with one form of message:
// "max_num_seqs must be in [1, 65536], got 0".
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "core/status.h"

namespace pinfer {

template <typename T>
Status field_error(std::string_view field, std::string_view range, const T& found) {
  std::ostringstream message;
  message << field << " must be " << range << ", got " << found;
  return Status::invalid_argument(message.str());
}

// Refuses NaN too: no comparison with it holds.
template <typename T>
Status check_range(std::string_view field, T value, T low, T high) {
  if (value >= low && value <= high) return Status::ok_status();
  std::ostringstream range;
  range << "in [" << low << ", " << high << "]";
  return field_error(field, range.str(), value);
}

}  // namespace pinfer
