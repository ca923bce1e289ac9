#include "kv_cache/block_hash.h"

#include <array>
#include <cassert>

namespace pinfer {
namespace {

void store_le32(uint32_t value, uint8_t* bytes) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

void update_le32(Sha256& hash, uint32_t value) {
  std::array<uint8_t, 4> bytes;
  store_le32(value, bytes.data());
  hash.update(bytes.data(), bytes.size());
}

}  // namespace

BlockHash root_block_hash(int32_t block_size, std::string_view cache_salt) {
  static constexpr std::string_view kDomain("pinfer block hash 1\0", 20);
  Sha256 hash;
  hash.update(kDomain.data(), kDomain.size());
  update_le32(hash, static_cast<uint32_t>(block_size));
  update_le32(hash, static_cast<uint32_t>(cache_salt.size()));
  hash.update(cache_salt.data(), cache_salt.size());
  return hash.finish();
}

BlockHash hash_block(const BlockHash& parent, std::span<const int32_t> token_ids) {
  Sha256 hash;
  hash.update(parent.data(), parent.size());
  // Sixteen tokens at a time: fewer calls, no allocation, any block size.
  std::array<uint8_t, 64> bytes;
  size_t num_bytes = 0;
  for (const int32_t token_id : token_ids) {
    store_le32(static_cast<uint32_t>(token_id), bytes.data() + num_bytes);
    num_bytes += 4;
    if (num_bytes == bytes.size()) {
      hash.update(bytes.data(), num_bytes);
      num_bytes = 0;
    }
  }
  hash.update(bytes.data(), num_bytes);
  return hash.finish();
}

void extend_block_hashes(Request& request, int32_t block_size, int32_t num_blocks) {
  assert(int64_t{num_blocks} * block_size <= request.num_tokens());
  std::vector<BlockHash>& hashes = request.block_hashes;
  const auto size = static_cast<size_t>(block_size);
  while (hashes.size() < static_cast<size_t>(num_blocks)) {
    const BlockHash parent =
        hashes.empty() ? root_block_hash(block_size, request.cache_salt) : hashes.back();
    hashes.push_back(
        hash_block(parent, request.all_token_ids().subspan(hashes.size() * size, size)));
  }
}

}  // namespace pinfer
