#include "engine/embedding_text.h"

namespace pinfer {
namespace {

Status unknown_prompt(const PoolingEntry& pooling, const std::string& name) {
  std::string names;
  for (const auto& [known, text] : pooling.prompts) names += (names.empty() ? "" : ", ") + known;
  return Status::invalid_argument(
      "prompt_name: the model has no prompt " + name.substr(0, 80) +
      (names.empty() ? ", nor any other" : "; it has " + names.substr(0, 200)));
}

}  // namespace

Result<std::string> embedding_text(const PoolingEntry& pooling, std::string_view text,
                                   const std::optional<std::string>& prompt_name) {
  const std::string name = prompt_name.value_or(pooling.default_prompt_name.value_or(""));
  std::string whole;
  if (!name.empty()) {
    const auto prompt = pooling.prompts.find(name);
    if (prompt == pooling.prompts.end()) return unknown_prompt(pooling, name);
    whole = prompt->second;
  }
  return whole.append(text);
}

}  // namespace pinfer
