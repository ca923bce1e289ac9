// JSON lines in, JSON lines out: every input line gets one answer, in order. A line that cannot be
// served is answered with {"error": ...}; the command goes on.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "pinfer/pinfer.hpp"

namespace pinfer::cli {

using Json = nlohmann::ordered_json;

// Compact; bytes that are not valid UTF-8 become U+FFFD.
std::string to_json_text(const Json& json);

// The same for text that somebody wrote; throws Error where it is not valid UTF-8.
std::string to_request_text(const Json& json);

// The line as JSON, nested at most 256 deep. Throws Error.
Json parse_line(const std::string& line);

// Throws Error naming the field for a value of the wrong type.
std::string text_field(const Json& object, const char* name);
std::vector<int32_t> ids_field(const Json& object, const char* name);
bool bool_field(const Json& object, const char* name, bool default_value);
double number_field(const Json& object, const char* name, double low, double high);
int64_t integer_field(const Json& object, const char* name, int64_t low, int64_t high);

// Throws Error naming the first field of the object that is not in `known`.
void refuse_unknown_fields(const Json& object, std::initializer_list<const char*> known);

Json error_answer(const std::string& message);

// Throws Error if something of what was printed has not arrived.
void flush_output();
void print_line(const Json& answer);

// Answers stdin line by line with answer(parsed line); Errors it throws become error answers.
void answer_lines(const std::function<Json(const Json&)>& answer);

}  // namespace pinfer::cli
