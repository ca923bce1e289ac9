#include "tokenizer/tokenizer.h"

#include "core/utf8.h"
#include "tokenizer/tokenizer_parts.h"

namespace pinfer {

namespace {

// Positions are 32-bit in the tables of long words.
constexpr size_t kMaxTextSize = size_t{1} << 30;

// Encodes one stretch of text in which no added token is looked for any more.
Status encode_plain(const TokenizerParts& parts, const TextPiece& piece, TextArena* arena,
                    std::vector<TextPiece>* words, std::vector<int32_t>* ids) {
  words->clear();
  PINFER_RETURN_IF_ERROR(parts.pre_tokenizer.apply(piece, arena, words));
  for (const TextPiece& word : *words) {
    if (word.text.empty()) continue;
    PINFER_RETURN_IF_ERROR(parts.model->tokenize(word.text, ids));
  }
  return Status::ok_status();
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::open(const std::string& path,
                                                   const TokenizerOptions& options) {
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::open(path));
  return open(std::move(file), options);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::open(std::unique_ptr<MappedFile> mapped,
                                                   const TokenizerOptions& options) {
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<TokenizerFile> file,
                          TokenizerFile::of(std::move(mapped)));
  PINFER_ASSIGN_OR_RETURN(auto parts, read_tokenizer_parts(std::move(file), options));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_memory(std::span<const std::byte> bytes,
                                                          const TokenizerOptions& options) {
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<TokenizerFile> file,
                          TokenizerFile::copy(bytes, "tokenizer.bin"));
  PINFER_ASSIGN_OR_RETURN(auto parts, read_tokenizer_parts(std::move(file), options));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               bool add_special_tokens) const {
  if (text.size() > kMaxTextSize) {
    return Status::invalid_argument("text: expected at most " + std::to_string(kMaxTextSize) +
                                    " bytes, found " + std::to_string(text.size()));
  }
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    return Status::invalid_argument("text: not valid UTF-8 at byte " + std::to_string(invalid));
  }
  const TokenizerParts& parts = *parts_;
  TextArena arena;
  std::vector<AddedTokenPart> chunks;
  std::vector<AddedTokenPart> normalized_chunks;
  std::vector<TextPiece> normalized;
  std::vector<TextPiece> words;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + parts.prefix_ids.size() + parts.suffix_ids.size());
  if (add_special_tokens) ids = parts.prefix_ids;
  const size_t first_size = text.empty() ? 0 : read_code_point(text, 0).size;
  parts.added_tokens->split({text, first_size, true}, &chunks);
  for (const AddedTokenPart& chunk : chunks) {
    if (chunk.id >= 0) {
      ids.push_back(chunk.id);
      continue;
    }
    normalized.clear();
    PINFER_RETURN_IF_ERROR(parts.normalizer.apply(chunk.piece, &arena, &normalized));
    normalized_chunks.clear();
    for (const TextPiece& piece : normalized) {
      parts.normalized_added_tokens->split(piece, &normalized_chunks);
    }
    for (const AddedTokenPart& part : normalized_chunks) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        PINFER_RETURN_IF_ERROR(encode_plain(parts, part.piece, &arena, &words, &ids));
      }
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), parts.suffix_ids.begin(), parts.suffix_ids.end());
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                      bool skip_special_tokens) const {
  const Vocabulary& vocabulary = parts_->vocabulary;
  std::vector<int32_t> kept;
  kept.reserve(ids.size());
  for (const int32_t id : ids) {
    if (!vocabulary.contains(id)) {
      return Status::invalid_argument("ids: " + std::to_string(id) +
                                      " is not a token id (expected 0 to " +
                                      std::to_string(vocabulary.size() - 1) + ")");
    }
    const uint8_t flags = vocabulary.flags(id);
    if (!(flags & TOKEN_EXISTS) || (skip_special_tokens && (flags & TOKEN_SPECIAL))) continue;
    kept.push_back(id);
  }
  return parts_->decoder->decode(kept);
}

int32_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }

bool Tokenizer::has_token(int32_t id) const {
  const Vocabulary& vocabulary = parts_->vocabulary;
  return vocabulary.contains(id) && (vocabulary.flags(id) & TOKEN_EXISTS);
}

bool Tokenizer::is_special(int32_t id) const {
  return has_token(id) && (parts_->vocabulary.flags(id) & TOKEN_SPECIAL);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int32_t id = parts_->vocabulary.find(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::string Tokenizer::id_to_token(int32_t id) const {
  return has_token(id) ? std::string(parts_->vocabulary.text(id)) : std::string();
}

std::string Tokenizer::token_bytes(int32_t id) const {
  return has_token(id) ? parts_->decoder->token_bytes(id) : std::string();
}

}  // namespace pinfer
