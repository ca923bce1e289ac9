#include "core/sha256.h"

// The low-level functions need five small objects of libcrypto; the EVP interface would bring in
// its providers, its configuration files and their start-up work.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <new>

namespace pinfer {

struct Sha256::State {
  SHA256_CTX context;
};

Sha256::State* Sha256::state() { return std::launder(reinterpret_cast<State*>(storage_.data())); }

Sha256::Sha256() {
  static_assert(sizeof(State) <= sizeof(storage_) && alignof(State) <= 8);
  SHA256_Init(&(new (storage_.data()) State)->context);
}

Sha256::~Sha256() = default;

void Sha256::update(const void* data, size_t num_bytes) {
  SHA256_Update(&state()->context, data, num_bytes);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  SHA256_Final(digest.data(), &state()->context);
  return digest;
}

Sha256Digest sha256(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.finish();
}

std::string to_hex(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace pinfer
