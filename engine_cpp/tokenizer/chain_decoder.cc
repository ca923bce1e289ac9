// Decoders that treat tokens as texts: SentencePiece, WordPiece and their like. The steps of
// tokenizer.json stand in one order: bytes put together, then steps on single tokens, then steps
// on the whole text.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/decoder.h"
#include "tokenizer/decoder_step.h"

namespace pinfer {

namespace {

using DecoderSteps = std::vector<std::unique_ptr<const DecoderStep>>;

class ChainDecoder : public Decoder {
 public:
  ChainDecoder(StringTable surfaces, const Vocabulary& vocabulary)
      : surfaces_(surfaces), vocabulary_(vocabulary) {}

  Status read(const nlohmann::json& fields, const TextStepContext& context) {
    has_byte_fallback_ = fields.at("byte_fallback").get<bool>();
    is_byte_level_ = fields.at("byte_level").get<bool>();
    for (const auto& step : fields.at("token_steps")) {
      PINFER_ASSIGN_OR_RETURN(auto made, make_decoder_step(step, context));
      token_steps_.push_back(std::move(made));
    }
    // A stream can cut characters from the beginning of the text; anything else that looks at the
    // whole text has to wait for its end.
    for (const auto& step : fields.at("text_steps")) {
      PINFER_ASSIGN_OR_RETURN(auto made, make_decoder_step(step, context));
      text_steps_.push_back(std::move(made));
      const bool strips_start = step.at("step") == "strip" && step.at("stop") == 0;
      if (strips_start && text_steps_.size() == 1) {
        strip_text_ = step.at("content").get<std::string>();
        strip_limit_ = step.at("start").get<uint32_t>();
      } else {
        needs_all_tokens_ = true;
      }
    }
    // A run of byte tokens is spelled in the byte alphabet as a whole or not at all, and steps
    // behind the bytes see all of the text.
    const bool waits = has_byte_fallback_ || !text_steps_.empty();
    needs_all_tokens_ = needs_all_tokens_ || (is_byte_level_ && waits);
    return Status::ok_status();
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string result;
    bool is_first = true;
    const auto put = [&](std::string text) {
      for (const auto& step : token_steps_) step->apply(is_first, &text);
      is_first = false;
      if (!is_byte_level_ || !from_byte_alphabet(text, &result)) result += text;
    };
    std::string run;
    const auto end_run = [&] {
      if (run.empty()) return;
      if (find_invalid_utf8(run) == std::string::npos) {
        put(std::move(run));
      } else {
        for (size_t i = 0; i < run.size(); ++i) put(std::string(kReplacementText));
      }
      run.clear();
    };
    for (const int32_t id : ids) {
      if (is_byte(id)) {
        run += surface(id);
      } else {
        end_run();
        put(std::string(surface(id)));
      }
    }
    end_run();
    if (is_byte_level_) {
      std::string text;
      append_lossy_utf8(result, &text);
      result = std::move(text);
    }
    for (const auto& step : text_steps_) step->apply(true, &result);
    return result;
  }

  void add(int32_t id, DecoderState* state, std::string* text) const override {
    if (needs_all_tokens_) {
      state->held_ids.push_back(id);
      return;
    }
    if (is_byte_level_) {
      std::string token(surface(id));
      for (const auto& step : token_steps_) step->apply(state->is_first, &token);
      state->is_first = false;
      if (!from_byte_alphabet(token, &state->unfinished)) state->unfinished += token;
      give_out_characters(state, text);
      return;
    }
    if (!is_byte(id)) {
      end_bytes(state, text);
      put(std::string(surface(id)), state, text);
      return;
    }
    std::string& bytes = state->unfinished;
    bytes += surface(id);
    while (!bytes.empty()) {
      const Utf8Prefix prefix = classify_utf8(bytes);
      if (prefix.kind == Utf8Prefix::Kind::INCOMPLETE) break;
      if (prefix.kind == Utf8Prefix::Kind::VALID) {
        put(bytes.substr(0, prefix.size), state, text);
      } else {
        put_marks(prefix.size, state, text);
      }
      bytes.erase(0, prefix.size);
      state->from_prompt -= std::min(state->from_prompt, prefix.size);
    }
  }

  void finish(DecoderState* state, std::string* text) const override {
    if (needs_all_tokens_) {
      *text += decode(state->held_ids);
      state->held_ids.clear();
      return;
    }
    if (is_byte_level_) {
      give_out_rest(state, text);
    } else {
      end_bytes(state, text);
    }
  }

  std::string token_bytes(int32_t id) const override {
    std::string text(surface(id));
    if (is_byte(id)) return text;
    for (const auto& step : token_steps_) step->apply(false, &text);
    std::string bytes;
    return is_byte_level_ && from_byte_alphabet(text, &bytes) ? bytes : text;
  }

 private:
  std::string_view surface(int32_t id) const { return surfaces_.at(static_cast<size_t>(id)); }
  bool is_byte(int32_t id) const {
    return has_byte_fallback_ && (vocabulary_.flags(id) & TOKEN_BYTE) && surface(id).size() == 1;
  }

  // One mark per byte, without those that came with the prompt.
  void put_marks(size_t num_bytes, DecoderState* state, std::string* text) const {
    for (size_t i = std::min(state->from_prompt, num_bytes); i < num_bytes; ++i) {
      put(std::string(kReplacementText), state, text);
    }
  }

  void end_bytes(DecoderState* state, std::string* text) const {
    put_marks(state->unfinished.size(), state, text);
    state->unfinished.clear();
    state->from_prompt = 0;
  }

  void put(std::string token, DecoderState* state, std::string* text) const {
    for (const auto& step : token_steps_) step->apply(state->is_first, &token);
    state->is_first = false;
    std::string_view rest = token;
    while (!state->is_past_strip && !rest.empty()) {
      if (state->num_stripped < strip_limit_ && rest.starts_with(strip_text_)) {
        rest.remove_prefix(strip_text_.size());
        ++state->num_stripped;
      } else {
        state->is_past_strip = true;
      }
    }
    *text += rest;
  }

  StringTable surfaces_;
  const Vocabulary& vocabulary_;
  bool has_byte_fallback_ = false;
  bool is_byte_level_ = false;
  DecoderSteps token_steps_;
  DecoderSteps text_steps_;
  std::string strip_text_;
  uint32_t strip_limit_ = 0;
  bool needs_all_tokens_ = false;
};

}  // namespace

Result<std::unique_ptr<const Decoder>> make_chain_decoder(const nlohmann::json& fields,
                                                          const TextStepContext& context,
                                                          StringTable surfaces,
                                                          const Vocabulary& vocabulary) {
  auto decoder = std::make_unique<ChainDecoder>(surfaces, vocabulary);
  PINFER_RETURN_IF_ERROR(decoder->read(fields, context));
  return std::unique_ptr<const Decoder>(std::move(decoder));
}

}  // namespace pinfer
