#include "template/message_preparation.h"

#include "template/text/python_text.h"
#include "template/value/dict.h"
#include "template/value/from_json.h"

namespace pinfer::jinja {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kReasoningFields[] = {"reasoning_content", "thinking", "reasoning"};
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr char kPartSeparator[] = "\n";

// Names are shown; a text of somebody's conversation is not.
std::string describe(const Json& json) {
  constexpr size_t kMaxNameSize = 40;
  if (!json.is_string()) return json.type_name();
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMaxNameSize ? "a text" : text;
}

[[noreturn]] void fail(const std::string& path, const std::string& expected,
                       const std::string& found) {
  throw RenderError(path + ": expected " + expected + ", found " + found);
}

// The texts of a list of parts; throws naming the part that is not text.
std::vector<std::string> part_texts(const Json& content, const std::string& path) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < content.size(); ++i) {
    std::string where = path + "[" + std::to_string(i) + "]";
    const Json& part = content[i];
    if (!part.is_object()) fail(where, "an object", part.type_name());
    auto type = part.find("type");
    if (type == part.end()) fail(where + ".type", "\"text\"", "nothing");
    if (*type != "text") fail(where + ".type", "\"text\"", describe(*type));
    auto text = part.find("text");
    if (text == part.end()) fail(where + ".text", "a text", "nothing");
    if (!text->is_string()) fail(where + ".text", "a text", describe(*text));
    texts.push_back(text->get<std::string>());
  }
  return texts;
}

Value prepare_content(Heap& heap, const Json& content, const std::string& path, bool takes_parts) {
  if (!content.is_array()) return from_json(heap, content);
  std::vector<std::string> texts = part_texts(content, path);
  if (takes_parts) return from_json(heap, content);
  std::string joined;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) joined += kPartSeparator;
    joined += texts[i];
  }
  return string_from_json(heap, joined);
}

Value prepare_message(Heap& heap, const Json& message, const std::string& path,
                      const TakesParts& takes_parts) {
  if (!message.is_object()) fail(path, "an object", describe(message));
  auto role = message.find("role");
  bool parts = takes_parts(role != message.end() && role->is_string()
                               ? std::string_view(role->get_ref<const std::string&>())
                               : std::string_view());
  Value reasoning;
  for (std::string_view field : kReasoningFields) {
    auto found = message.find(field);
    if (!reasoning.is_missing() || found == message.end() || found->is_null()) continue;
    reasoning = from_json(heap, *found);
  }
  DictBuilder dict(heap);
  if (!reasoning.is_missing()) dict.set("thinking", reasoning);
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) continue;
    Value name = string_from_json(heap, key);
    dict.set(std::move(name), key == "content"
                                  ? prepare_content(heap, value, path + ".content", parts)
                                  : from_json(heap, value));
  }
  if (!reasoning.is_missing()) dict.set("reasoning_content", reasoning);
  return dict.build();
}

// A copy of a dict with one value replaced.
Value with_entry(Heap& heap, const Value& dict, std::string_view key, Value value) {
  DictBuilder copy(heap);
  for (const auto& entry : dict.dict().entries()) copy.set(entry.first, entry.second);
  copy.set(key, std::move(value));
  return copy.build();
}

Value with_last(Heap& heap, const Value& list, size_t index, Value item) {
  std::vector<Value> items = list.items();
  items[index] = std::move(item);
  return make_list(heap, std::move(items));
}

}  // namespace

Value prepare_messages(Heap& heap, const Json& messages, const TakesParts& takes_parts) {
  if (!messages.is_array()) fail("messages", "a list", describe(messages));
  if (messages.empty()) throw RenderError("messages: expected at least one message, found none");
  std::vector<Value> prepared;
  for (size_t i = 0; i < messages.size(); ++i) {
    std::string path = "messages[" + std::to_string(i) + "]";
    prepared.push_back(prepare_message(heap, messages[i], path, takes_parts));
  }
  return make_list(heap, std::move(prepared));
}

FinalMessage::FinalMessage(Heap& heap, const Value& messages, std::string_view source) {
  size_t last = messages.items().size() - 1;
  const Value& message = messages.items()[last];
  const Value* content = message.dict().find("content");
  if (content == nullptr) {
    throw RenderError("continue_final_message: the last message has no content");
  }
  if (source.find("content") == std::string_view::npos) {
    throw RenderError("continue_final_message: the chat template does not read content");
  }
  Value marked;
  if (content->is_string()) {
    text_ = content->text();
    marked = make_string(heap, text_ + std::string(kTag));
  } else if (content->is(Type::LIST) && !content->items().empty()) {
    size_t part = content->items().size() - 1;  // parts are text: prepare_messages checked them
    const Value& last_part = content->items()[part];
    text_ = last_part.dict().find("text")->text();
    Value text = make_string(heap, text_ + std::string(kTag));
    marked = with_last(heap, *content, part, with_entry(heap, last_part, "text", text));
  } else {
    throw RenderError("continue_final_message: the last message has no text to continue");
  }
  marked_messages_ = with_last(heap, messages, last, with_entry(heap, message, "content", marked));
}

std::string FinalMessage::cut(const std::string& rendered) const {
  std::string_view tag = strip(kTag);
  size_t position = rfind_text(rendered, tag);
  if (position == std::string::npos ||
      find_text(rendered, strip(text_)) == std::string_view::npos) {
    throw RenderError(
        "continue_final_message: the last message does not appear in the text, because the chat "
        "template drops or changes it");
  }
  std::string result = rendered.substr(0, position);
  // Without the tag's space the template has trimmed the message, so its own end is trimmed too.
  bool keeps_spaces = std::string_view(rendered).substr(position).starts_with(kTag);
  return keeps_spaces ? result : std::string(strip(result, Side::RIGHT));
}

}  // namespace pinfer::jinja
