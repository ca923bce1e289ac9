// libFuzzer: any ids, whole and as a stream; for the byte-level tokenizer both must agree.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/utf8.h"
#include "tokenizer/streaming_detokenizer.h"

namespace {

std::unique_ptr<pinfer::Tokenizer> open(const char* name) {
  auto opened =
      pinfer::Tokenizer::open(PINFER_TEST_DIR "/data/tokenizer/" + std::string(name) + ".bin");
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().message().c_str());
    std::abort();
  }
  return opened.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto byte_level = open("byte_level");
  static const auto byte_fallback = open("byte_fallback");
  if (size == 0) return 0;
  const bool is_byte_level = data[0] & 1;
  const bool skip_special_tokens = data[0] & 2;
  const pinfer::Tokenizer& tokenizer = is_byte_level ? *byte_level : *byte_fallback;
  std::vector<int32_t> ids;
  for (size_t i = 1; i + 2 <= size; i += 2) {
    uint16_t id = 0;
    std::memcpy(&id, data + i, 2);
    ids.push_back(id % (tokenizer.vocab_size() + 1));  // one of them is no token
  }
  pinfer::StreamingDetokenizer stream(tokenizer, {}, skip_special_tokens);
  std::string joined;
  for (const int32_t id : ids) joined += stream.add(id);
  joined += stream.finish();
  if (pinfer::find_invalid_utf8(joined) != std::string::npos) std::abort();
  const auto whole = tokenizer.decode(ids, skip_special_tokens);
  if (is_byte_level && whole.ok() && whole.value() != joined) std::abort();
  return 0;
}
