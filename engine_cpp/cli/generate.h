// One generation, streamed to stdout: what `run` and `chat` share.
#pragma once

#include <string>

#include "cli/stats.h"
#include "pinfer/pinfer.hpp"

namespace pinfer::cli {

// How often a waiting command looks whether it was interrupted.
inline constexpr int64_t kPollMilliseconds = 50;

// Runs the request to its end, or until Ctrl-C, writing text (or ids, separated by spaces) as it
// comes. Returns all of the text. Throws Error if the request failed.
std::string stream_to_stdout(Request request, bool as_ids, Stats* stats);

// Everything from stdin or a file. Throws Error naming the file.
std::string read_all(const std::string& path);

}  // namespace pinfer::cli
