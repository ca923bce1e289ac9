// The text side of a bundle: tokenizer and chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/bundle.h"
#include "core/status.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace pinfer {

// Immutable; any thread.
class TextProcessor {
 public:
  static Result<std::unique_ptr<TextProcessor>> open(const Bundle& bundle);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool has_chat_template() const { return chat_template_ != nullptr; }

  // The text of a conversation. request_json as pinfer_render() takes it; INVALID_ARGUMENT naming
  // the field that is wrong, or with what the template itself raised.
  Result<std::string> render(std::string_view request_json) const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;  // null if the model has none
};

}  // namespace pinfer
