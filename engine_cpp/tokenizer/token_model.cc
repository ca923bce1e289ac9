#include "tokenizer/token_model.h"

#include <nlohmann/json.hpp>

namespace pinfer {

Result<UnknownToken> UnknownToken::parse(const nlohmann::json& fields,
                                         const Vocabulary& vocabulary) {
  UnknownToken unknown;
  const auto& id = fields.at("unk_id");
  if (!id.is_null()) {
    unknown.id = id.get<int32_t>();
    if (!vocabulary.contains(*unknown.id)) {
      return Status::invalid_argument("model.unk_id: " + std::to_string(*unknown.id) +
                                      " is out of range");
    }
  }
  unknown.missing = fields.value("missing_unk_token", std::string());
  return unknown;
}

Status UnknownToken::check(std::string_view text) const {
  if (missing.empty()) return Status::ok_status();
  return Status::invalid_argument("text: '" + std::string(text) +
                                  "' has no token, and the tokenizer's unknown token '" + missing +
                                  "' is not in its vocabulary");
}

Result<ByteIds> read_byte_ids(const TokenizerFile& file, const Vocabulary& vocabulary,
                              int32_t lowest) {
  ByteIds ids;
  PINFER_ASSIGN_OR_RETURN(const auto stored, file.array<int32_t>(TokenizerSection::BYTE_IDS));
  if (stored.size() != ids.size()) {
    return file.bad_section(TokenizerSection::BYTE_IDS, "expected 256 ids");
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (stored[i] < lowest || stored[i] >= vocabulary.size()) {
      return file.bad_section(TokenizerSection::BYTE_IDS, "an id is out of range");
    }
    ids[i] = stored[i];
  }
  return ids;
}

Result<std::unique_ptr<const TokenModel>> make_token_model(const nlohmann::json& fields,
                                                           const TokenizerFile& file,
                                                           const Vocabulary& vocabulary) {
  const auto type = fields.at("type").get<std::string>();
  if (type == "BPE") return make_bpe_model(fields, file, vocabulary);
  if (type == "Unigram") return make_unigram_model(fields, file, vocabulary);
  if (type == "WordPiece") return make_word_piece_model(fields, file, vocabulary);
  if (type == "WordLevel") return make_word_level_model(fields, vocabulary);
  return Status::failed_precondition("model type '" + type + "' is unknown; export again");
}

}  // namespace pinfer
