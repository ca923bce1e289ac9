// libFuzzer: any bytes as text, through each of the small tokenizers. The first byte chooses one.
// Valid text comes back whole from the byte-level tokenizer.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace {

std::vector<std::unique_ptr<pinfer::Tokenizer>> open_all() {
  std::vector<std::unique_ptr<pinfer::Tokenizer>> tokenizers;
  for (const char* name :
       {"byte_level", "ignore_merges", "byte_fallback", "unigram", "word_piece"}) {
    auto opened =
        pinfer::Tokenizer::open(PINFER_TEST_DIR "/data/tokenizer/" + std::string(name) + ".bin");
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().message().c_str());
      std::abort();
    }
    tokenizers.push_back(opened.take());
  }
  return tokenizers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizers = open_all();
  if (size == 0) return 0;
  const size_t chosen = data[0] % tokenizers.size();
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto ids = tokenizers[chosen]->encode(text, true);
  if (!ids.ok()) return 0;
  const auto decoded = tokenizers[chosen]->decode(ids.value(), false);
  if (!decoded.ok() || (chosen == 0 && decoded.value() != text)) std::abort();
  return 0;
}
