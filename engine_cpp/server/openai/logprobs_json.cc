#include "server/openai/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace pinfer::server {
namespace {

constexpr double kMinusInfinity = -9999.0;

double finite(double logprob) { return std::isfinite(logprob) ? logprob : kMinusInfinity; }

bool is_valid_utf8(const std::string& bytes) {
  // The library refuses to print text that is not UTF-8; so it is asked.
  try {
    (void)Json(bytes).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

// A part of a character is written as OpenAI does: bytes:\xf0\x9f.
std::string readable(const std::string& bytes) {
  if (is_valid_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) {
    char escaped[5];
    std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(c));
    text += escaped;
  }
  return text;
}

Json byte_list(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json chat_entry(const Engine& engine, int32_t id, double logprob) {
  const std::string bytes = engine.token_bytes(id);
  // Bytes that are no text become U+FFFD in "token"; "bytes" has them as they are.
  return {{"token", bytes}, {"logprob", finite(logprob)}, {"bytes", byte_list(bytes)}};
}

// Every character has one byte that does not continue another.
int64_t num_characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

Json chat_logprobs(const Engine& engine, std::span<const int32_t> ids,
                   std::span<const TokenLogprobs> logprobs, size_t num_top) {
  Json content = Json::array();
  for (size_t i = 0; i < std::min(ids.size(), logprobs.size()); ++i) {
    Json entry = chat_entry(engine, ids[i], logprobs[i].logprob);
    Json top = Json::array();
    for (size_t j = 0; j < std::min(num_top, logprobs[i].top.size()); ++j) {
      const auto& [id, logprob] = logprobs[i].top[j];
      top.push_back(chat_entry(engine, id, logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

void CompletionLogprobs::add_token(int32_t id) {
  const std::string bytes = engine_.token_bytes(id);
  tokens_.push_back(readable(bytes));
  text_offsets_.push_back(text_offset_);
  if (in_prompt_) {
    // Some tokens stand for nothing in the text (<s>), or for less than they say (a first space).
    std::string_view rest = bytes;
    const std::string_view text = std::string_view(prompt_text_).substr(prompt_position_);
    if (!text.starts_with(rest) && rest.starts_with(' ')) rest.remove_prefix(1);
    if (!text.starts_with(rest)) return;
    prompt_position_ += rest.size();
    text_offset_ += num_characters(rest);
  } else if (!skip_special_tokens_ || !engine_.detokenize({id}, true).empty() ||
             !is_valid_utf8(bytes)) {
    text_offset_ += num_characters(bytes);
  }
}

void CompletionLogprobs::begin_prompt(std::string_view text) {
  in_prompt_ = true;
  prompt_text_ = text;
  prompt_position_ = 0;
}

void CompletionLogprobs::begin_output(bool skip_special_tokens) {
  if (in_prompt_) text_offset_ = num_characters(prompt_text_);
  in_prompt_ = false;
  skip_special_tokens_ = skip_special_tokens;
}

void CompletionLogprobs::add_unpredicted(int32_t id) {
  add_token(id);
  token_logprobs_.push_back(nullptr);
  top_logprobs_.push_back(nullptr);
}

void CompletionLogprobs::add(int32_t id, const TokenLogprobs& logprobs) {
  add_token(id);
  token_logprobs_.push_back(finite(logprobs.logprob));
  Json top = Json::object();
  for (size_t j = 0; j < std::min(num_top_, logprobs.top.size()); ++j) {
    const auto& [top_id, logprob] = logprobs.top[j];
    top[readable(engine_.token_bytes(top_id))] = finite(logprob);
  }
  // The sampled token is always listed, as OpenAI does.
  const std::string sampled = readable(engine_.token_bytes(id));
  if (!top.contains(sampled)) top[sampled] = finite(logprobs.logprob);
  top_logprobs_.push_back(num_top_ == 0 ? Json(nullptr) : std::move(top));
}

Json CompletionLogprobs::take() {
  Json taken = {{"tokens", std::exchange(tokens_, Json::array())},
                {"token_logprobs", std::exchange(token_logprobs_, Json::array())},
                {"top_logprobs", std::exchange(top_logprobs_, Json::array())},
                {"text_offset", std::exchange(text_offsets_, Json::array())}};
  return taken;
}

Json prompt_logprobs(const Engine& engine, std::span<const int32_t> prompt_ids,
                     std::span<const TokenLogprobs> logprobs) {
  Json list = Json::array({nullptr});
  for (size_t i = 0; i < logprobs.size() && i + 1 < prompt_ids.size(); ++i) {
    Json entry = Json::object();
    const auto add = [&](int32_t id, double logprob) {
      entry[std::to_string(id)] = {{"logprob", finite(logprob)},
                                   {"decoded_token", readable(engine.token_bytes(id))}};
    };
    add(prompt_ids[i + 1], logprobs[i].logprob);
    for (const auto& [id, logprob] : logprobs[i].top) add(id, logprob);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace pinfer::server
