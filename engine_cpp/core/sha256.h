// SHA-256, for the keys of cache blocks and for the files of a bundle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pinfer {

using Sha256Digest = std::array<uint8_t, 32>;

// An incremental hash. Use each object from one thread at a time, for one digest.
class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void update(const void* data, size_t num_bytes);
  // Ends the hash. REQUIRES: not called before.
  Sha256Digest finish();

 private:
  struct State;
  // Inline storage, so that hashing a cache block allocates nothing.
  alignas(8) std::array<unsigned char, 128> storage_;
  State* state();
};

Sha256Digest sha256(std::span<const uint8_t> bytes);

// 64 lower-case hex digits.
std::string to_hex(const Sha256Digest& digest);

}  // namespace pinfer
