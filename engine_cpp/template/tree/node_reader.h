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

// One object of the tree. Knows the way to it from its parent, which must outlive it; the path is
// only written out for messages.
class NodeReader {
 public:
  // The outermost object. Keeps references to both.
  NodeReader(const Json& json, std::string_view name) : NodeReader(json, nullptr, name, kNoIndex) {}

  std::string path() const;
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
  static constexpr size_t kNoIndex = static_cast<size_t>(-1);

  NodeReader(const Json& json, const NodeReader* parent, std::string_view name, size_t index);

  const Json* json_;
  const NodeReader* parent_;
  std::string_view name_;  // of the field of the parent
  size_t index_;           // in the list of that field
};

}  // namespace pinfer::jinja
