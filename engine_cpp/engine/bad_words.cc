#include "engine/bad_words.h"

namespace pinfer {

Result<std::vector<std::vector<int32_t>>> bad_words_token_ids(
    const Tokenizer& tokenizer, const std::vector<std::string>& bad_words) {
  std::vector<std::vector<int32_t>> all;
  for (size_t i = 0; i < bad_words.size(); ++i) {
    const std::string name = "bad_words[" + std::to_string(i) + "]";
    const size_t first = bad_words[i].find_first_not_of(" \t\r\n\v\f");
    if (first == std::string::npos) {
      return Status::invalid_argument(name + ": expected a word, found only spaces");
    }
    const std::string word = bad_words[i].substr(first);
    const Result<std::vector<int32_t>> alone = tokenizer.encode(word, false);
    if (!alone.ok()) return Status::invalid_argument(name + ": " + alone.status().message());
    if (alone.value().empty()) continue;
    PINFER_ASSIGN_OR_RETURN(std::vector<int32_t> spaced, tokenizer.encode(" " + word, false));
    all.push_back(alone.value());
    if (spaced.size() == all.back().size() && spaced[0] != all.back()[0]) {
      all.push_back(std::move(spaced));
    }
  }
  return all;
}

}  // namespace pinfer
