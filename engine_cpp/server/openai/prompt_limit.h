// Texts that are too long for the context are refused before they are tokenized.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "pinfer/pinfer.hpp"

namespace pinfer::server {

// Thread-safe.
class PromptLimit {
 public:
  PromptLimit(std::shared_ptr<const Engine> engine, int32_t max_model_len, int32_t vocab_size)
      : engine_(std::move(engine)), max_model_len_(max_model_len), vocab_size_(vocab_size) {}

  // ApiError context_length_exceeded if even the vocabulary's longest token, in every place of the
  // context, would not make up the text. `param`: the field that holds it.
  void check(const std::string& text, const std::string& param) const;

 private:
  size_t longest_token() const;

  const std::shared_ptr<const Engine> engine_;
  const int32_t max_model_len_;
  const int32_t vocab_size_;
  // Looked up when the first long text comes.
  mutable std::once_flag looked_up_;
  mutable size_t longest_token_ = 0;  // bytes
};

}  // namespace pinfer::server
