// libFuzzer: any bytes as a tokenizer file. Start from tests/data/tokenizer.
#include <cstddef>
#include <cstdint>

#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto opened =
      pinfer::Tokenizer::from_memory({reinterpret_cast<const std::byte*>(data), size});
  if (!opened.ok()) return 0;
  const pinfer::Tokenizer& tokenizer = *opened.value();
  const auto ids = tokenizer.encode("Hello <s> wörld 天 🦙\n 123", true);
  if (ids.ok()) (void)tokenizer.decode(ids.value(), true);
  return 0;
}
