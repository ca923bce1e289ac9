#include "template/chat_template.h"

#include <algorithm>
#include <map>
#include <new>
#include <utility>

#include "template/eval/evaluator.h"
#include "template/message_preparation.h"
#include "template/text/utf8.h"
#include "template/tree/tree_loader.h"
#include "template/value/dict.h"
#include "template/value/from_json.h"

namespace pinfer {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
constexpr char kFile[] = "chat_template.json";
constexpr std::string_view kReservedNames[] = {"messages", "tools", "documents",
                                               "add_generation_prompt"};

struct NamedTemplate {
  std::string name;
  std::string source;
  std::map<std::string, bool, std::less<>> content_parts;  // by role
  std::unique_ptr<jinja::RootNode> root;

  // Roles that the exporter did not try are treated like the user's.
  bool takes_parts(std::string_view role) const {
    auto found = content_parts.find(role);
    if (found == content_parts.end()) found = content_parts.find("user");
    return found != content_parts.end() && found->second;
  }
};

Status damaged(const std::string& what) {
  return Status::data_loss(std::string(kFile) + ": " + what);
}

Result<std::string> read_text(const Json& object, const char* field, const std::string& path) {
  auto found = object.find(field);
  if (found == object.end() || !found->is_string()) {
    return damaged(path + "." + field + ": expected a text, found " +
                   (found == object.end() ? "nothing" : found->type_name()));
  }
  return found->get<std::string>();
}

Result<NamedTemplate> read_template(const Json& json, const std::string& path) {
  if (!json.is_object()) return damaged(path + ": expected an object, found " + json.type_name());
  NamedTemplate result;
  PINFER_ASSIGN_OR_RETURN(result.name, read_text(json, "name", path));
  PINFER_ASSIGN_OR_RETURN(result.source, read_text(json, "source", path));
  auto parts = json.find("content_parts");
  if (parts == json.end() || !parts->is_object()) {
    return damaged(path + ".content_parts: expected an object");
  }
  for (const auto& [role, takes_parts] : parts->items()) {
    if (!takes_parts.is_boolean()) {
      return damaged(path + ".content_parts." + role + ": expected a boolean, found " +
                     takes_parts.type_name());
    }
    result.content_parts[role] = takes_parts.get<bool>();
  }
  auto root = json.find("root");
  if (root == json.end()) return damaged(path + ".root: expected an object, found nothing");
  Result<std::unique_ptr<jinja::RootNode>> tree = jinja::load_tree(*root);
  if (!tree.ok()) return damaged(path + "." + tree.status().message());
  result.root = tree.take();
  return result;
}

Result<std::vector<std::pair<std::string, std::string>>> read_special_tokens(const Json& json) {
  auto found = json.find("special_tokens");
  if (found == json.end() || !found->is_object()) {
    return damaged("special_tokens: expected an object");
  }
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& [name, text] : found->items()) {
    if (!text.is_string()) {
      return damaged("special_tokens." + name + ": expected a text, found " + text.type_name());
    }
    tokens.emplace_back(name, text.get<std::string>());
  }
  return tokens;
}

Status check_object_list(const Json& json, const char* field) {
  if (json.is_null()) return Status::ok_status();
  if (!json.is_array()) {
    return Status::invalid_argument(std::string(field) + ": expected a list, found " +
                                    json.type_name());
  }
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i].is_object()) continue;
    return Status::invalid_argument(std::string(field) + "[" + std::to_string(i) +
                                    "]: expected an object, found " + json[i].type_name());
  }
  return Status::ok_status();
}

Status check_input(const RenderInput& input) {
  PINFER_RETURN_IF_ERROR(check_object_list(input.tools, "tools"));
  PINFER_RETURN_IF_ERROR(check_object_list(input.documents, "documents"));
  if (input.continue_final_message && input.add_generation_prompt.value_or(false)) {
    return Status::invalid_argument(
        "continue_final_message and add_generation_prompt: expected at most one of them");
  }
  const Json& kwargs = input.chat_template_kwargs;
  if (!kwargs.is_null() && !kwargs.is_object()) {
    return Status::invalid_argument(
        std::string("chat_template_kwargs: expected an object, found ") + kwargs.type_name());
  }
  for (std::string_view name : kReservedNames) {
    if (kwargs.is_object() && kwargs.contains(name)) {
      return Status::invalid_argument("chat_template_kwargs." + std::string(name) +
                                      ": the name belongs to a field of the request");
    }
  }
  return Status::ok_status();
}

jinja::RenderLimits to_limits(const TemplateLimits& limits) {
  jinja::RenderLimits result;
  result.max_steps = limits.max_steps;
  result.max_memory_bytes = limits.max_memory_bytes;
  result.max_output_bytes = limits.max_output_bytes;
  return result;
}

}  // namespace

struct ChatTemplate::Impl {
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::vector<NamedTemplate> templates;

  const NamedTemplate* find(std::string_view name) const {
    auto found = std::find_if(templates.begin(), templates.end(),
                              [&](const NamedTemplate& entry) { return entry.name == name; });
    return found == templates.end() ? nullptr : &*found;
  }

  std::string list_names() const {
    std::string names;
    for (const NamedTemplate& entry : templates) names += (names.empty() ? "" : ", ") + entry.name;
    return names;
  }

  Result<const NamedTemplate*> select(const RenderInput& input) const {
    const NamedTemplate* chosen = nullptr;
    if (!input.template_name.empty()) {
      chosen = find(input.template_name);
    } else {
      if (!input.tools.is_null()) chosen = find("tool_use");
      if (chosen == nullptr) chosen = find("default");
    }
    if (chosen != nullptr) return chosen;
    std::string wanted = input.template_name.empty() ? "default" : input.template_name;
    return Status::invalid_argument("chat_template: expected one of " + list_names() + ", found " +
                                    (wanted.size() > 60 ? "another name" : wanted));
  }

  jinja::Value variables(jinja::Heap& heap, const RenderInput& input,
                         const jinja::Value& messages) const {
    jinja::DictBuilder dict(heap);
    for (const auto& [name, text] : special_tokens) dict.set(name, jinja::make_string(heap, text));
    if (input.chat_template_kwargs.is_object()) {
      for (const auto& [name, value] : input.chat_template_kwargs.items()) {
        jinja::Value key = jinja::string_from_json(heap, name);
        dict.set(std::move(key), jinja::from_json(heap, value));
      }
    }
    dict.set("messages", messages);
    dict.set("tools", jinja::from_json(heap, input.tools));
    dict.set("documents", jinja::from_json(heap, input.documents));
    bool prompt = input.add_generation_prompt.value_or(!input.continue_final_message);
    dict.set("add_generation_prompt", jinja::Value::boolean(prompt));
    return dict.build();
  }

  // Throws RenderError without a line for what comes before the template.
  std::string evaluate(jinja::RenderContext& context, const NamedTemplate& chosen,
                       const RenderInput& input) const {
    jinja::Value messages =
        jinja::prepare_messages(context.heap, input.messages,
                                [&](std::string_view role) { return chosen.takes_parts(role); });
    std::optional<jinja::FinalMessage> final_message;
    if (input.continue_final_message) {
      final_message.emplace(context.heap, messages, chosen.source);
      messages = final_message->marked_messages();
    }
    jinja::Value values = variables(context.heap, input, messages);
    jinja::Evaluator evaluator(context, values);
    std::string text;
    try {
      text = evaluator.run(*chosen.root);
    } catch (const jinja::RenderError& error) {
      if (error.origin() == jinja::RenderError::Origin::TEMPLATE) throw;
      throw jinja::RenderError("chat template, line " + std::to_string(evaluator.line()) + ": " +
                               error.message());
    }
    return final_message.has_value() ? final_message->cut(text) : text;
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::from_json(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return damaged("expected JSON, found something else");
  if (!json.is_object())
    return damaged(std::string("expected an object, found ") + json.type_name());
  auto version = json.find("format_version");
  if (version == json.end() || *version != kFormatVersion) {
    std::string found = version == json.end()     ? "nothing"
                        : version->is_primitive() ? version->dump().substr(0, 40)
                                                  : version->type_name();
    return Status::failed_precondition(std::string(kFile) + ": format_version: expected " +
                                       std::to_string(kFormatVersion) + ", found " + found);
  }
  auto impl = std::make_unique<Impl>();
  PINFER_ASSIGN_OR_RETURN(impl->special_tokens, read_special_tokens(json));
  auto templates = json.find("templates");
  if (templates == json.end() || !templates->is_array() || templates->empty()) {
    return damaged("templates: expected a list with at least one template");
  }
  for (size_t i = 0; i < templates->size(); ++i) {
    std::string path = "templates[" + std::to_string(i) + "]";
    PINFER_ASSIGN_OR_RETURN(NamedTemplate entry, read_template((*templates)[i], path));
    if (impl->find(entry.name) != nullptr) {
      return damaged(path + ".name: '" + entry.name + "' occurs twice");
    }
    impl->templates.push_back(std::move(entry));
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Result<std::string> ChatTemplate::render(const RenderInput& input) const {
  PINFER_RETURN_IF_ERROR(check_input(input));
  PINFER_ASSIGN_OR_RETURN(const NamedTemplate* chosen, impl_->select(input));
  try {
    jinja::RenderContext context(to_limits(input.limits), input.now);
    return impl_->evaluate(context, *chosen, input);
  } catch (const jinja::RenderError& error) {
    return Status::invalid_argument(error.message());
  } catch (const std::bad_alloc&) {
    return Status::resource_exhausted("no memory to render the chat template");
  }
}

bool ChatTemplate::has(std::string_view name) const { return impl_->find(name) != nullptr; }

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const NamedTemplate& entry : impl_->templates) names.push_back(entry.name);
  return names;
}

}  // namespace pinfer
