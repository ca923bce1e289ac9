// parse_tool_call_arguments: JSON text of the protocol becomes objects for the template.
#include "json/wide_integer.h"
#include "template/chat_template.h"

namespace pinfer {

namespace {

using Json = nlohmann::ordered_json;

Status parse_arguments(Json& arguments, const std::string& path, int max_depth) {
  const std::string& text = arguments.get_ref<const std::string&>();
  if (text.empty()) {
    arguments = Json::object();
    return Status::ok_status();
  }
  bool too_deep = false;
  auto callback = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > max_depth;
    return !too_deep;
  };
  Json parsed = Json::parse(text, callback, /*allow_exceptions=*/false);
  if (too_deep) {
    return Status::invalid_argument(path + ": expected at most " + std::to_string(max_depth) +
                                    " levels of nesting, found more");
  }
  const auto number = find_wide_integer(text);
  if (number.has_value() && !parsed.is_discarded()) {
    return Status::invalid_argument(path + ": " + number->message());
  }
  if (parsed.is_discarded()) {
    return Status::invalid_argument(path + ": expected JSON, found something else");
  }
  arguments = std::move(parsed);
  return Status::ok_status();
}

}  // namespace

Status parse_tool_call_arguments(Json& messages, int max_depth) {
  if (!messages.is_array()) return Status::ok_status();  // render() names what is wrong
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) continue;
    auto calls = messages[i].find("tool_calls");
    if (calls == messages[i].end() || !calls->is_array()) continue;
    for (size_t k = 0; k < calls->size(); ++k) {
      Json& call = (*calls)[k];
      if (!call.is_object()) continue;
      auto function = call.find("function");
      if (function == call.end() || !function->is_object()) continue;
      auto arguments = function->find("arguments");
      if (arguments == function->end() || !arguments->is_string()) continue;
      std::string path = "messages[" + std::to_string(i) + "].tool_calls[" + std::to_string(k) +
                         "].function.arguments";
      PINFER_RETURN_IF_ERROR(parse_arguments(*arguments, path, max_depth));
    }
  }
  return Status::ok_status();
}

}  // namespace pinfer
