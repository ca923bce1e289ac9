// Unigram: the split of a piece whose tokens' scores have the largest sum.
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/token_model.h"

namespace pinfer {

namespace {

constexpr double kUnknownPenalty = 10.0;  // below the worst token, as in the reference

class UnigramModel : public TokenModel {
 public:
  UnigramModel(ByteTrie trie, std::span<const double> scores, double min_score,
               UnknownToken unknown, bool has_byte_fallback, const ByteIds& byte_ids,
               const Vocabulary& vocabulary)
      : trie_(trie),
        scores_(scores),
        unknown_score_(min_score - kUnknownPenalty),
        unknown_(std::move(unknown)),
        has_byte_fallback_(has_byte_fallback),
        byte_ids_(byte_ids),
        vocabulary_(vocabulary) {}

  Status tokenize(std::string_view piece, std::vector<int32_t>* ids) const override {
    thread_local std::vector<Node> nodes;
    nodes.assign(piece.size() + 1, Node());
    PINFER_RETURN_IF_ERROR(find_best_paths(piece, &nodes));
    // Backwards along the best path; neighbouring unknown characters become one token.
    thread_local std::vector<int32_t> reversed;
    reversed.clear();
    size_t end = piece.size();
    while (end > 0) {
      size_t begin = nodes[end].begin;
      if (nodes[end].id >= 0) {
        reversed.push_back(nodes[end].id);
      } else {
        while (begin > 0 && nodes[begin].id < 0) begin = nodes[begin].begin;
        add_unknown(piece.substr(begin, end - begin), &reversed);
      }
      end = begin;
    }
    ids->insert(ids->end(), reversed.rbegin(), reversed.rend());
    return Status::ok_status();
  }

 private:
  static constexpr size_t kUnreached = static_cast<size_t>(-1);

  // The best way to a position; id -1: by an unknown character.
  struct Node {
    double score = 0.0;
    size_t begin = kUnreached;
    int32_t id = -1;
  };

  Status find_best_paths(std::string_view piece, std::vector<Node>* nodes) const {
    for (size_t begin = 0; begin < piece.size();) {
      const double score_so_far = (*nodes)[begin].score;
      const size_t next = begin + read_code_point(piece, begin).size;
      const auto consider = [&](size_t end, double score, int32_t id) {
        Node& node = (*nodes)[end];
        if (node.begin == kUnreached || score > node.score) node = {score, begin, id};
      };
      bool has_single = false;
      trie_.for_each_match(piece, begin, [&](size_t end, int32_t id) {
        if (static_cast<size_t>(id) >= scores_.size()) return;
        // The unknown token's own text counts as unknown, like any text without a token.
        const bool is_unknown = unknown_.id && id == *unknown_.id;
        consider(end, score_so_far + scores_[static_cast<size_t>(id)], is_unknown ? -1 : id);
        if (end == next) has_single = true;
      });
      if (!has_single) {
        if (!unknown_.id) {
          return Status::invalid_argument("text: '" +
                                          std::string(piece.substr(begin, next - begin)) +
                                          "' has no token and the tokenizer no unknown token");
        }
        consider(next, score_so_far + unknown_score_, -1);
      }
      begin = next;
    }
    return Status::ok_status();
  }

  // Appends, last first, what stands for `text`.
  void add_unknown(std::string_view text, std::vector<int32_t>* reversed) const {
    const int32_t id = vocabulary_.find_in_model(text);
    if (id >= 0) {
      reversed->push_back(id);
      return;
    }
    bool has_bytes = has_byte_fallback_;
    for (const char byte : text) {
      has_bytes = has_bytes && byte_ids_[static_cast<unsigned char>(byte)] >= 0;
    }
    if (!has_bytes) {
      reversed->push_back(*unknown_.id);
      return;
    }
    for (size_t i = text.size(); i-- > 0;) {
      reversed->push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
    }
  }

  ByteTrie trie_;
  std::span<const double> scores_;
  double unknown_score_;
  UnknownToken unknown_;
  bool has_byte_fallback_;
  ByteIds byte_ids_;
  const Vocabulary& vocabulary_;
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> make_unigram_model(const nlohmann::json& fields,
                                                             const TokenizerFile& file,
                                                             const Vocabulary& vocabulary) {
  PINFER_ASSIGN_OR_RETURN(ByteTrie trie, ByteTrie::open(file, TokenizerSection::MODEL_TRIE_NODES,
                                                        TokenizerSection::MODEL_TRIE_EDGES));
  PINFER_ASSIGN_OR_RETURN(const auto scores, file.array<double>(TokenizerSection::SCORES));
  if (scores.size() != static_cast<size_t>(vocabulary.size())) {
    return file.bad_section(TokenizerSection::SCORES, "expected one score per token");
  }
  PINFER_ASSIGN_OR_RETURN(UnknownToken unknown, UnknownToken::parse(fields, vocabulary));
  PINFER_ASSIGN_OR_RETURN(const ByteIds byte_ids, read_byte_ids(file, vocabulary, -1));
  return std::unique_ptr<const TokenModel>(std::make_unique<UnigramModel>(
      trie, scores, fields.at("min_score").get<double>(), std::move(unknown),
      fields.at("byte_fallback").get<bool>(), byte_ids, vocabulary));
}

}  // namespace pinfer
