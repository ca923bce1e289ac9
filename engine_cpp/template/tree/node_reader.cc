#include "template/tree/node_reader.h"

#include "template/text/utf8.h"

namespace pinfer::jinja {

namespace {

std::string join_path(const std::string& path, std::string_view field) {
  // Long paths say no more than their end.
  constexpr size_t kMaxPath = 300;
  std::string joined = path + "." + std::string(field);
  return joined.size() <= kMaxPath ? joined : "..." + joined.substr(joined.size() - kMaxPath);
}

}  // namespace

NodeReader::NodeReader(const Json& json, const NodeReader* parent, std::string_view name,
                       size_t index)
    : json_(&json), parent_(parent), name_(name), index_(index) {
  if (!json.is_object()) {
    throw TreeError(path() + ": expected an object, found " + json.type_name());
  }
}

std::string NodeReader::path() const {
  std::string path = parent_ == nullptr ? std::string(name_) : join_path(parent_->path(), name_);
  return index_ == kNoIndex ? path : path + "[" + std::to_string(index_) + "]";
}

void NodeReader::fail(std::string_view name, std::string_view expected) const {
  auto found = json_->find(name);
  std::string shown = found == json_->end() ? "nothing" : found->type_name();
  if (found != json_->end() && found->is_primitive()) {
    std::string dumped = found->dump(-1, ' ', true, Json::error_handler_t::replace);
    if (dumped.size() <= 60) shown = dumped;
  }
  throw TreeError(join_path(path(), name) + ": expected " + std::string(expected) + ", found " +
                  shown);
}

bool NodeReader::is_null(std::string_view name) const { return field(name).is_null(); }

const Json& NodeReader::field(std::string_view name) const {
  auto found = json_->find(name);
  if (found == json_->end()) fail(name, "a value");
  return *found;
}

std::string NodeReader::text(std::string_view name) const {
  const Json& json = field(name);
  if (!json.is_string()) fail(name, "a text");
  const std::string& text = json.get_ref<const std::string&>();
  if (utf8_error(text).has_value()) fail(name, "valid UTF-8");
  return text;
}

int64_t NodeReader::integer(std::string_view name, int64_t low, int64_t high) const {
  const Json& json = field(name);
  bool fits = json.is_number_integer() &&
              (!json.is_number_unsigned() || json.get<uint64_t>() <= uint64_t{INT64_MAX}) &&
              json.get<int64_t>() >= low && json.get<int64_t>() <= high;
  if (!fits) {
    fail(name, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return json.get<int64_t>();
}

std::optional<int64_t> NodeReader::optional_integer(std::string_view name, int64_t low,
                                                    int64_t high) const {
  if (is_null(name)) return std::nullopt;
  return integer(name, low, high);
}

NodeReader NodeReader::object(std::string_view name) const {
  return NodeReader(field(name), this, name, kNoIndex);
}

std::vector<NodeReader> NodeReader::objects(std::string_view name) const {
  const Json& list = field(name);
  if (!list.is_array()) fail(name, "a list");
  std::vector<NodeReader> readers;
  readers.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) readers.push_back(NodeReader(list[i], this, name, i));
  return readers;
}

}  // namespace pinfer::jinja
