// Checked access to the JSON of a compiled template. Private to tree/.
#pragma once

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinfer::jinja {

using Json = nlohmann::ordered_json;

// The tree is not as the exporter writes it.
class TreeError : public std::exception {
 public:
  explicit TreeError(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// One object of the tree, with the path to it for messages.
class NodeReader {
 public:
  NodeReader(const Json& json, std::string path);

  const std::string& path() const { return path_; }
  [[noreturn]] void fail(std::string_view field, std::string_view expected) const;

  bool is_null(std::string_view field) const;
  const Json& field(std::string_view name) const;
  std::string text(std::string_view name) const;  // valid UTF-8
  int64_t integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<int64_t> optional_integer(std::string_view name, int64_t low, int64_t high) const;
  NodeReader object(std::string_view name) const;
  // The objects of a list.
  std::vector<NodeReader> objects(std::string_view name) const;

 private:
  const Json* json_;
  std::string path_;
};

}  // namespace pinfer::jinja
