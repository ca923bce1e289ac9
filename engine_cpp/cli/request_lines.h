// JSON lines that become requests of the engine: many at once, answered in the order of the lines.
#pragma once

#include <functional>

#include "cli/json_lines.h"

namespace pinfer::cli {

// Waits for the answer of a line whose request has been submitted.
using WaitForAnswer = std::function<Json()>;

// Reads stdin and calls begin(line) for each line, on a thread of its own, so that an answer never
// waits for the next line; prints the answers. Errors that either throws become error answers.
void answer_request_lines(const std::function<WaitForAnswer(const Json&)>& begin);

}  // namespace pinfer::cli
