#include "core/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace pinfer {
namespace {

std::string hash_of(std::string_view text) {
  return to_hex(sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

// Values of FIPS 180-4.
TEST(Sha256Test, KnownValues) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256Test, PartsEqualTheWhole) {
  const std::string text(1000, 'a');
  for (const size_t part : {1, 63, 64, 65, 999}) {
    Sha256 hash;
    for (size_t i = 0; i < text.size(); i += part) {
      hash.update(text.data() + i, std::min(part, text.size() - i));
    }
    EXPECT_EQ(to_hex(hash.finish()), hash_of(text)) << part;
  }
}

TEST(Sha256Test, AMillionBytes) {
  EXPECT_EQ(hash_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace pinfer
