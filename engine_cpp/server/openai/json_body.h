// Reading the JSON bodies of requests. Everything here throws ApiError, naming the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pinfer::server {

using Json = nlohmann::ordered_json;

// An object, nested at most 256 deep, its keys in their order; of equal keys the last one counts.
Json parse_body(const std::string& body);

// Compact; bytes that are not valid UTF-8 become U+FFFD.
std::string to_json_text(const Json& json);

// Typed access to the fields of a body. null counts as absent everywhere.
class Fields {
 public:
  // `object` is borrowed.
  explicit Fields(const Json& object, std::string path = "") : object_(object), path_(path) {}

  // nullptr if absent.
  const Json* find(const char* name) const;
  bool has(const char* name) const { return find(name) != nullptr; }

  std::optional<double> number(const char* name, double low, double high) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> text(const char* name) const;
  // A list of ids, or of strings.
  std::optional<std::vector<int32_t>> token_ids(const char* name) const;
  std::optional<std::vector<std::string>> texts(const char* name) const;

  // Full name of a field, for messages.
  std::string path(const char* name) const { return path_ + name; }

 private:
  const Json& object_;
  const std::string path_;
};

// 400: "temperature: expected a number, found a string".
[[noreturn]] void refuse_value(const std::string& path, const std::string& expected,
                               const Json& found);

// The list as ids; ApiError naming the entry that is none.
std::vector<int32_t> read_token_ids(const Json& list, const std::string& path);

}  // namespace pinfer::server
