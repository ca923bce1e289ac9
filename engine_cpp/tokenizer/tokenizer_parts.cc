#include "tokenizer/tokenizer_parts.h"

#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer.h"

namespace pinfer {

namespace {

using nlohmann::json;

Result<AddedTokens> read_added_tokens(const TokenizerParts& parts, const json& config,
                                      TokenizerSection nodes, TokenizerSection edges) {
  PINFER_ASSIGN_OR_RETURN(ByteTrie trie, ByteTrie::open(*parts.file, nodes, edges));
  const auto mask = [&config](const char* field) {
    const json& bit = config.at(field);
    return bit.is_null() ? uint64_t{0} : uint64_t{1} << (bit.get<uint32_t>() % 64);
  };
  return AddedTokens(trie, parts.vocabulary, parts.classes, mask("word_class"),
                     mask("space_class"));
}

Status read_ids(const json& values, const Vocabulary& vocabulary, std::vector<int32_t>* ids) {
  *ids = values.get<std::vector<int32_t>>();
  for (const int32_t id : *ids) {
    if (!vocabulary.contains(id)) {
      return Status::invalid_argument("post_processor: id " + std::to_string(id) +
                                      " is out of range");
    }
  }
  return Status::ok_status();
}

Status read_config(const json& config, const TokenizerOptions& options, TokenizerParts* parts) {
  PINFER_ASSIGN_OR_RETURN(parts->added_tokens,
                          read_added_tokens(*parts, config, TokenizerSection::ADDED_TRIE_NODES,
                                            TokenizerSection::ADDED_TRIE_EDGES));
  PINFER_ASSIGN_OR_RETURN(parts->normalized_added_tokens,
                          read_added_tokens(*parts, config, TokenizerSection::NORMALIZED_TRIE_NODES,
                                            TokenizerSection::NORMALIZED_TRIE_EDGES));
  const TextStepContext context{parts->file.get(), &parts->classes, options.library_directories};
  PINFER_ASSIGN_OR_RETURN(parts->normalizer, TextSteps::parse(config.at("normalizer"), context));
  PINFER_ASSIGN_OR_RETURN(parts->pre_tokenizer,
                          TextSteps::parse(config.at("pre_tokenizer"), context));
  PINFER_ASSIGN_OR_RETURN(parts->model,
                          make_token_model(config.at("model"), *parts->file, parts->vocabulary));
  PINFER_ASSIGN_OR_RETURN(parts->decoder,
                          make_decoder(config.at("decoder"), context, parts->vocabulary));
  const json& post_processor = config.at("post_processor");
  PINFER_RETURN_IF_ERROR(
      read_ids(post_processor.at("prefix"), parts->vocabulary, &parts->prefix_ids));
  return read_ids(post_processor.at("suffix"), parts->vocabulary, &parts->suffix_ids);
}

}  // namespace

Result<std::unique_ptr<const TokenizerParts>> read_tokenizer_parts(
    std::unique_ptr<const TokenizerFile> file, const TokenizerOptions& options) {
  auto parts = std::make_unique<TokenizerParts>();
  parts->file = std::move(file);
  const TokenizerFile& tables = *parts->file;
  PINFER_ASSIGN_OR_RETURN(parts->vocabulary, Vocabulary::open(tables));
  PINFER_ASSIGN_OR_RETURN(parts->classes, CharClasses::open(tables));
  // The one place where the JSON library's exceptions for missing or mistyped fields end.
  try {
    const json config = json::parse(tables.text(TokenizerSection::CONFIG));
    const Status status = read_config(config, options, parts.get());
    if (status.code() == StatusCode::INVALID_ARGUMENT) {
      return tables.bad_section(TokenizerSection::CONFIG, status.message());
    }
    if (!status.ok()) return status;
  } catch (const json::exception& error) {
    return tables.bad_section(TokenizerSection::CONFIG, error.what());
  }
  return std::unique_ptr<const TokenizerParts>(std::move(parts));
}

}  // namespace pinfer
