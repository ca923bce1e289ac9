#include "cli/json_lines.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string_view>

#include "json/wide_integer.h"

namespace pinfer::cli {
namespace {

constexpr int kMaxDepth = 256;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(PINFER_INVALID_ARGUMENT, message);
}

void refuse_wide_integer(const std::string& line) {
  if (const auto number = find_wide_integer(line)) refuse(number->message());
}

[[noreturn]] void wrong_type(const char* name, const std::string& expected, const Json& value) {
  std::string found = to_json_text(value);
  if (found.size() > 60) found = value.type_name();
  refuse(std::string(name) + ": expected " + expected + ", found " + found);
}

const Json& member(const Json& object, const char* name) {
  const auto entry = object.find(name);
  if (entry == object.end()) refuse(std::string(name) + ": missing");
  return *entry;
}

}  // namespace

std::string to_json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_request_text(const Json& json) {
  try {
    return json.dump();
  } catch (const nlohmann::json::exception&) {
    refuse("text: not valid UTF-8");
  }
}

Json parse_line(const std::string& line) {
  bool too_deep = false;
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMaxDepth;
    return !too_deep;
  };
  try {
    Json json = Json::parse(line, check_depth);
    if (too_deep) refuse("JSON is nested deeper than " + std::to_string(kMaxDepth));
    refuse_wide_integer(line);
    return json;
  } catch (const nlohmann::json::parse_error& error) {
    refuse("not valid JSON, at byte " + std::to_string(error.byte));
  } catch (const nlohmann::json::exception& error) {  // a number beyond what a double holds
    refuse_wide_integer(line);
    refuse(std::string("not valid JSON: ") + error.what());
  }
}

std::string text_field(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_string()) wrong_type(name, "a string", value);
  return value.get<std::string>();
}

std::vector<int32_t> ids_field(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_array()) wrong_type(name, "a list of ids", value);
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() > INT32_MAX) {
      wrong_type(name, "ids (integers from 0)", item);
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

bool bool_field(const Json& object, const char* name, bool default_value) {
  const auto entry = object.find(name);
  if (entry == object.end() || entry->is_null()) return default_value;
  if (!entry->is_boolean()) wrong_type(name, "true or false", *entry);
  return entry->get<bool>();
}

double number_field(const Json& object, const char* name, double low, double high) {
  const Json& value = member(object, name);
  if (!value.is_number() || !(value.get<double>() >= low) || !(value.get<double>() <= high)) {
    wrong_type(name, "a number from " + Json(low).dump() + " to " + Json(high).dump(), value);
  }
  return value.get<double>();
}

int64_t integer_field(const Json& object, const char* name, int64_t low, int64_t high) {
  const Json& value = member(object, name);
  const bool is_large =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!value.is_number_integer() || is_large || value.get<int64_t>() < low ||
      value.get<int64_t>() > high) {
    wrong_type(name, "an integer from " + std::to_string(low) + " to " + std::to_string(high),
               value);
  }
  return value.get<int64_t>();
}

void refuse_unknown_fields(const Json& object, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : object.items()) {
    const std::string_view name = key;
    if (std::none_of(known.begin(), known.end(), [&](const char* k) { return name == k; })) {
      refuse("unknown field " + key.substr(0, 80));
    }
  }
}

Json error_answer(const std::string& message) { return {{"error", message}}; }

void flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Error(PINFER_RESOURCE_EXHAUSTED, std::string("standard output: ") + std::strerror(errno));
}

void print_line(const Json& answer) {
  const std::string text = to_json_text(answer) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_output();
}

void answer_lines(const std::function<Json(const Json&)>& answer) {
  std::string line;
  while (std::getline(std::cin, line)) {
    Json result;
    try {
      result = answer(parse_line(line));
    } catch (const std::exception& error) {
      result = error_answer(error.what());
    }
    print_line(result);
  }
}

}  // namespace pinfer::cli
