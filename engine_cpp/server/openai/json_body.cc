#include "server/openai/json_body.h"

#include <cmath>
#include <limits>

#include "json/wide_integer.h"
#include "server/api_error.h"

namespace pinfer::server {
namespace {

constexpr int kMaxDepth = 256;
// Objects keep their keys in a list, which is searched for every new one.
constexpr int kMaxKeys = 1024;

// Ends the parsing of a body that is beyond a bound.
struct TooLarge {};

// What was found, without echoing more than a few characters of it.
std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return value.dump();
  }
}

std::string range_text(const std::string& kind, const std::string& low, const std::string& high) {
  return kind + " from " + low + " to " + high;
}

void refuse_wide_integer(const std::string& body) {
  const auto number = find_wide_integer(body);
  if (number.has_value()) throw ApiError(400, number->message(), number->path);
}

std::string number_text(double value) { return Json(value).dump(); }

}  // namespace

void refuse_value(const std::string& path, const std::string& expected, const Json& found) {
  throw ApiError(400, path + ": expected " + expected + ", found " + describe(found), path);
}

Json parse_body(const std::string& body) {
  bool too_deep = false, too_many_keys = false;
  std::vector<int> num_keys(kMaxDepth + 1);  // of the open object at each depth
  const auto check_bounds = [&](int depth, Json::parse_event_t event, Json&) {
    using Event = Json::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    too_deep |= opens && depth >= kMaxDepth;
    if (too_deep) throw TooLarge();
    const auto level = static_cast<size_t>(depth);
    if (event == Event::object_start) num_keys[level + 1] = 0;
    too_many_keys |= event == Event::key && ++num_keys[level] > kMaxKeys;
    if (too_many_keys) throw TooLarge();
    return true;
  };
  Json json;
  try {
    json = Json::parse(body.begin(), body.end(), check_bounds);
  } catch (const TooLarge&) {
  } catch (const Json::parse_error& error) {
    throw ApiError(400, "the body is not valid JSON, at byte " + std::to_string(error.byte));
  } catch (const Json::exception&) {
    refuse_wide_integer(body);
    throw ApiError(400, "the body is not valid JSON: a number is out of range");
  }
  if (too_deep) {
    throw ApiError(400,
                   "the body is nested more than " + std::to_string(kMaxDepth) + " levels deep");
  }
  if (too_many_keys) {
    throw ApiError(400,
                   "an object in the body has more than " + std::to_string(kMaxKeys) + " keys");
  }
  refuse_wide_integer(body);
  if (!json.is_object()) {
    throw ApiError(400, "the body: expected an object, found " + describe(json));
  }
  return json;
}

std::string to_json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* Fields::find(const char* name) const {
  const auto entry = object_.find(name);
  return entry == object_.end() || entry->is_null() ? nullptr : &*entry;
}

std::optional<double> Fields::number(const char* name, double low, double high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = range_text("a number", number_text(low), number_text(high));
  if (!value->is_number()) refuse_value(path(name), expected, *value);
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) refuse_value(path(name), expected, *value);
  return number;
}

std::optional<int64_t> Fields::integer(const char* name, int64_t low, int64_t high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = range_text("an integer", std::to_string(low), std::to_string(high));
  if (!value->is_number_integer()) refuse_value(path(name), expected, *value);
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    refuse_value(path(name), expected, *value);
  }
  const int64_t number = value->get<int64_t>();
  if (number < low || number > high) refuse_value(path(name), expected, *value);
  return number;
}

std::optional<bool> Fields::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse_value(path(name), "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_value(path(name), "a string", *value);
  return value->get<std::string>();
}

std::optional<std::vector<int32_t>> Fields::token_ids(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) refuse_value(path(name), "a list of token ids", *value);
  return read_token_ids(*value, path(name));
}

std::optional<std::vector<std::string>> Fields::texts(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) refuse_value(path(name), "a list of strings", *value);
  std::vector<std::string> texts;
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& entry = (*value)[i];
    if (!entry.is_string()) {
      refuse_value(path(name) + "[" + std::to_string(i) + "]", "a string", entry);
    }
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

std::vector<int32_t> read_token_ids(const Json& list, const std::string& path) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& entry = list[i];
    const bool fits =
        entry.is_number_integer() && entry >= 0 && entry <= std::numeric_limits<int32_t>::max();
    if (!fits) refuse_value(path + "[" + std::to_string(i) + "]", "a token id", entry);
    ids.push_back(entry.get<int32_t>());
  }
  return ids;
}

}  // namespace pinfer::server
