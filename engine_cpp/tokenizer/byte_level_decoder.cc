// The decoder of byte-level tokenizers: the bytes of all tokens, joined and read as UTF-8.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/decoder.h"

namespace pinfer {

namespace {

class ByteLevelDecoder : public Decoder {
 public:
  explicit ByteLevelDecoder(StringTable surfaces) : surfaces_(surfaces) {}

  std::string decode(std::span<const int32_t> ids) const override {
    std::string bytes;
    for (const int32_t id : ids) bytes += surface(id);
    if (find_invalid_utf8(bytes) == std::string::npos) return bytes;
    std::string text;
    text.reserve(bytes.size());
    append_lossy_utf8(bytes, &text);
    return text;
  }

  void add(int32_t id, DecoderState* state, std::string* text) const override {
    state->unfinished += surface(id);
    give_out_characters(state, text);
  }

  void finish(DecoderState* state, std::string* text) const override { give_out_rest(state, text); }

  std::string token_bytes(int32_t id) const override { return std::string(surface(id)); }

 private:
  std::string_view surface(int32_t id) const { return surfaces_.at(static_cast<size_t>(id)); }

  StringTable surfaces_;
};

}  // namespace

void give_out_characters(DecoderState* state, std::string* text) {
  std::string& bytes = state->unfinished;
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Prefix prefix = classify_utf8(std::string_view(bytes).substr(position));
    if (prefix.kind == Utf8Prefix::Kind::INCOMPLETE) break;
    if (prefix.kind == Utf8Prefix::Kind::VALID) {
      text->append(bytes, position, prefix.size);
    } else if (position >= state->from_prompt) {
      text->append(kReplacementText);
    }
    position += prefix.size;
  }
  bytes.erase(0, position);
  state->from_prompt -= std::min(state->from_prompt, position);
}

void give_out_rest(DecoderState* state, std::string* text) {
  if (state->unfinished.size() > state->from_prompt) text->append(kReplacementText);
  state->unfinished.clear();
  state->from_prompt = 0;
}

std::unique_ptr<const Decoder> make_byte_level_decoder(StringTable surfaces) {
  return std::make_unique<ByteLevelDecoder>(surfaces);
}

Result<std::unique_ptr<const Decoder>> make_decoder(const nlohmann::json& fields,
                                                    const TextStepContext& context,
                                                    const Vocabulary& vocabulary) {
  const TokenizerFile& file = *context.file;
  PINFER_ASSIGN_OR_RETURN(
      StringTable surfaces,
      StringTable::open(file, TokenizerSection::SURFACE_OFFSETS, TokenizerSection::SURFACE_BYTES));
  if (surfaces.size() != static_cast<size_t>(vocabulary.size())) {
    return file.bad_section(TokenizerSection::SURFACE_OFFSETS, "expected one text per token");
  }
  const auto type = fields.at("type").get<std::string>();
  if (type == "bytes") return make_byte_level_decoder(surfaces);
  if (type == "chain") return make_chain_decoder(fields, context, surfaces, vocabulary);
  return Status::failed_precondition("decoder '" + type + "' is unknown; export again");
}

}  // namespace pinfer
