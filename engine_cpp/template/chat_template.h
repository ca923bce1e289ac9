// Chat templates: the messages of a conversation become the text of a prompt.
//
// The exporter parsed the model's Jinja2 templates; this class evaluates the tree it wrote
// (chat_template.json) and gives what Hugging Face's apply_chat_template gives. Evaluation is
// bounded in steps, memory, output and depth, whatever the template or the messages are.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace pinfer {

// Bounds of one rendering. The defaults take conversations of several megabytes.
struct TemplateLimits {
  int64_t max_steps = 50'000'000;
  size_t max_memory_bytes = size_t{1} << 29;
  size_t max_output_bytes = size_t{1} << 26;
};

struct RenderInput {
  nlohmann::ordered_json messages;              // list of objects, at least one
  nlohmann::ordered_json tools;                 // null, or list of objects
  nlohmann::ordered_json documents;             // null, or list of objects
  nlohmann::ordered_json chat_template_kwargs;  // null, or object: further variables
  // Unset: true unless the last message is continued. Both at once are refused.
  std::optional<bool> add_generation_prompt;
  bool continue_final_message = false;
  std::string template_name;  // empty: `tool_use` if tools are given and it exists, else `default`
  std::chrono::system_clock::time_point now = std::chrono::system_clock::now();  // strftime_now
  TemplateLimits limits;
};

// Thread-safe: all methods but from_json are const, and renderings share nothing that changes.
class ChatTemplate {
 public:
  // The content of chat_template.json. DATA_LOSS naming the place if it is damaged,
  // FAILED_PRECONDITION if it is of another format version.
  static Result<std::unique_ptr<ChatTemplate>> from_json(std::string_view text);
  ~ChatTemplate();

  // The prompt. INVALID_ARGUMENT if the input is wrong or the template refuses it: the text of the
  // template's raise_exception alone, else the line of the template and what went wrong.
  //
  // Parts of `content` ({"type": "text", "text": ...}) stay a list if the template loops over them,
  // else they are joined by a line break. Other parts are refused.
  Result<std::string> render(const RenderInput& input) const;

  bool has(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Parses `tool_calls[*].function.arguments` that are JSON in a text, as the OpenAI protocol sends
// them, to objects, as templates want them; an empty text becomes {}. INVALID_ARGUMENT naming the
// path if one is not JSON or is nested more than `max_depth` levels.
Status parse_tool_call_arguments(nlohmann::ordered_json& messages, int max_depth = 256);

}  // namespace pinfer
