// Keys of the prefix cache. A full block's key is a SHA-256 chained over everything before it:
//   root  = SHA-256("pinfer block hash 1" NUL, block size, salt length, salt)
//   key_j = SHA-256(key_{j-1}, the block's token ids),  key_{-1} = root
// with numbers as little-endian 32 bits. The encoding is injective, so two blocks have equal keys
// exactly if block size, salt and all tokens up to the block's end are equal.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/request.h"
#include "core/sha256.h"

namespace pinfer {

using BlockHash = Sha256Digest;

BlockHash root_block_hash(int32_t block_size, std::string_view cache_salt);

BlockHash hash_block(const BlockHash& parent, std::span<const int32_t> token_ids);

// Extends request.block_hashes to its first num_blocks blocks.
// REQUIRES: num_blocks * block_size <= request.num_tokens().
void extend_block_hashes(Request& request, int32_t block_size, int32_t num_blocks);

// For hash tables: the key's first bytes are already uniform.
struct BlockHashHasher {
  size_t operator()(const BlockHash& hash) const {
    size_t value;
    std::memcpy(&value, hash.data(), sizeof(value));
    return value;
  }
};

}  // namespace pinfer
