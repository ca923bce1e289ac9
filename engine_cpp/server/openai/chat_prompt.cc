#include "server/openai/chat_prompt.h"

#include "server/api_error.h"

namespace pinfer::server {
namespace {

// A list of objects, if it is there.
void check_objects(const Fields& fields, const char* name) {
  const Json* list = fields.find(name);
  if (list == nullptr) return;
  if (!list->is_array()) refuse_value(fields.path(name), "a list of objects", *list);
  for (size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) {
      refuse_value(fields.path(name) + "[" + std::to_string(i) + "]", "an object", (*list)[i]);
    }
  }
}

void check_messages(const Fields& body) {
  const Json* messages = body.find("messages");
  if (messages == nullptr) {
    throw ApiError(400, "messages: expected a list, found none", "messages");
  }
  if (!messages->is_array()) refuse_value("messages", "a list of messages", *messages);
  if (messages->empty()) throw ApiError(400, "messages: expected at least one", "messages");
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string path = "messages[" + std::to_string(i) + "]";
    const Json& message = (*messages)[i];
    if (!message.is_object()) refuse_value(path, "an object", message);
    const Fields fields(message, path + ".");
    if (const Json* content = fields.find("content")) {
      if (!content->is_string() && !content->is_array()) {
        refuse_value(path + ".content", "a string or a list of parts", *content);
      }
    }
    check_objects(fields, "tool_calls");
    const auto role = fields.text("role");
    if (!role.has_value()) {
      throw ApiError(400, path + ".role: expected a string, found none", path + ".role");
    }
    if ((role == "user" || role == "system") && !fields.has("content")) {
      throw ApiError(400, path + ".content: expected a string or a list of parts, found none",
                     path + ".content");
    }
  }
}

}  // namespace

std::string render_chat_prompt(const Engine& engine, const Fields& body) {
  check_messages(body);
  check_objects(body, "tools");
  check_objects(body, "documents");
  Json request = {{"parse_tool_call_arguments", true}};
  for (const char* name : {"messages", "documents", "chat_template_kwargs"}) {
    if (const Json* value = body.find(name)) request[name] = *value;
  }
  const Json* tools = body.find("tools");
  if (tools != nullptr && !tools->empty()) request["tools"] = *tools;
  for (const char* name : {"add_generation_prompt", "continue_final_message"}) {
    if (const auto value = body.boolean(name)) request[name] = *value;
  }
  if (const auto name = body.text("chat_template")) request["chat_template"] = *name;
  try {
    return engine.render(to_json_text(request));
  } catch (const Error& error) {
    // A model without a template will not get one: 503, and trying again, would be of no use.
    if (error.status() != PINFER_FAILED_PRECONDITION) throw;
    throw ApiError(400, std::string(error.what()) + ": use /v1/completions", "messages");
  }
}

}  // namespace pinfer::server
