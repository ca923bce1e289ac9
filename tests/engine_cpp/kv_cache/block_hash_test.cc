#include "kv_cache/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pinfer {
namespace {

std::vector<int32_t> range(int32_t first, int32_t count) {
  std::vector<int32_t> token_ids(static_cast<size_t>(count));
  std::iota(token_ids.begin(), token_ids.end(), first);
  return token_ids;
}

std::vector<BlockHash> hashes_of(std::vector<int32_t> token_ids, int32_t block_size,
                                 std::string salt = "") {
  Request request("r0", std::move(token_ids), {}, {.cache_salt = std::move(salt)});
  extend_block_hashes(request, block_size, request.num_tokens() / block_size);
  return request.block_hashes;
}

// The Python twin's test (tests/runtime/test_kv_cache.py) expects the same values.
TEST(BlockHashTest, PinnedValues) {
  EXPECT_EQ(to_hex(root_block_hash(16, "")),
            "88ab0c37f0136a0667ca1f80c9ed81219726cbc049ba3340971f42e16d310a62");
  EXPECT_EQ(to_hex(root_block_hash(16, "tenant")),
            "ec00cce237f7fea84ef99adbf2e0bf77bdf88c56b241c00d491f9f72a4b5f57c");
  EXPECT_EQ(to_hex(hashes_of(range(0, 32), 16)[1]),
            "f4fb31bdb9ceae8057e92d7c2d0190a32acd2bd4b57523376f67ee6374203460");
}

TEST(BlockHashTest, EqualExactlyForEqualPrefixes) {
  const auto hashes = hashes_of(range(0, 64), 16);
  EXPECT_EQ(hashes.size(), 4U);
  EXPECT_EQ(hashes_of(range(0, 64), 16), hashes);
  auto changed = range(0, 64);
  changed[16] = 99;  // the first token of the second block
  const auto other = hashes_of(changed, 16);
  EXPECT_EQ(other[0], hashes[0]);
  for (size_t j = 1; j < 4; ++j) EXPECT_NE(other[j], hashes[j]);
}

TEST(BlockHashTest, SameTokensElsewhereInThePromptDiffer) {
  std::vector<int32_t> twice = range(0, 16);
  twice.insert(twice.end(), twice.begin(), twice.begin() + 16);
  const auto hashes = hashes_of(twice, 16);
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST(BlockHashTest, SaltAndBlockSizeSeparate) {
  const auto plain = hashes_of(range(0, 16), 16)[0];
  EXPECT_NE(hashes_of(range(0, 16), 16, "a")[0], plain);
  EXPECT_NE(hashes_of(range(0, 16), 16, "b")[0], hashes_of(range(0, 16), 16, "a")[0]);
  EXPECT_NE(hashes_of(range(0, 16), 8)[1], plain);
}

TEST(BlockHashTest, AnyBlockSize) {
  for (const int32_t block_size : {1, 3, 16, 17, 33}) {
    const auto token_ids = range(0, block_size);
    std::vector<uint8_t> bytes(32);
    const BlockHash root = root_block_hash(block_size, "");
    std::copy(root.begin(), root.end(), bytes.begin());
    for (const int32_t id : token_ids) {
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(id >> (8 * i)));
    }
    EXPECT_EQ(hash_block(root, token_ids), sha256(bytes)) << block_size;
  }
}

TEST(BlockHashTest, ExtendsWithTheOutput) {
  Request request("r0", range(0, 17), {});
  extend_block_hashes(request, 16, 1);
  for (int32_t i = 17; i < 32; ++i) request.append_output_token_id(i);
  extend_block_hashes(request, 16, 2);
  EXPECT_EQ(request.block_hashes, hashes_of(range(0, 32), 16));
}

}  // namespace
}  // namespace pinfer
