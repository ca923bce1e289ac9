#include "template/value/from_json.h"

#include "template/text/utf8.h"
#include "template/value/dict.h"

namespace pinfer::jinja {

namespace {

using Json = nlohmann::ordered_json;

Value convert(Heap& heap, const Json& json, int depth) {
  if (depth > kMaxJsonDepth) {
    throw RenderError("the request is nested more than " + std::to_string(kMaxJsonDepth) +
                      " levels deep");
  }
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{INT64_MAX}) {
        throw RenderError("the integer " + std::to_string(json.get<uint64_t>()) +
                          " needs more than 64 bits");
      }
      return Value::integer(static_cast<int64_t>(json.get<uint64_t>()));
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return string_from_json(heap, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(convert(heap, item, depth + 1));
      return make_list(heap, std::move(items));
    }
    case Json::value_t::object: {
      DictBuilder dict(heap);
      for (const auto& [key, value] : json.items()) {
        Value name = string_from_json(heap, key);
        dict.set(std::move(name), convert(heap, value, depth + 1));
      }
      return dict.build();
    }
    default:
      throw RenderError("the request holds binary data");
  }
}

}  // namespace

Value string_from_json(Heap& heap, const std::string& text) {
  if (std::optional<size_t> offset = utf8_error(text)) {
    throw RenderError("a text of the request is not valid UTF-8 at byte " +
                      std::to_string(*offset));
  }
  return make_string(heap, text);
}

Value from_json(Heap& heap, const Json& json) { return convert(heap, json, 1); }

}  // namespace pinfer::jinja
