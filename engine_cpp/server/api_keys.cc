#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <fstream>
#include <stdexcept>

namespace pinfer::server {
namespace {

constexpr std::string_view kScheme = "bearer ";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool has_bearer_scheme(std::string_view authorization) {
  if (authorization.size() < kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != kScheme[i]) return false;
  }
  return true;
}

std::vector<std::string> read_key_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("--api-key-file " + path + ": cannot be read");
  std::vector<std::string> keys;
  std::string line;
  while (std::getline(file, line)) {
    const std::string_view key = trimmed(line);
    if (!key.empty() && key.front() != '#') keys.emplace_back(key);
  }
  if (keys.empty()) throw std::runtime_error("--api-key-file " + path + ": holds no key");
  return keys;
}

}  // namespace

void ApiKeys::load(const std::vector<std::string>& keys, const std::string& file) {
  std::vector<std::string> all = keys;
  if (!file.empty()) {
    for (std::string& key : read_key_file(file)) all.push_back(std::move(key));
  }
  std::vector<Digest> digests;
  for (const std::string& key : all) {
    if (trimmed(key).empty()) throw std::runtime_error("--api-key: the key is empty");
    digests.push_back(digest_of(trimmed(key)));
  }
  const std::lock_guard lock(mutex_);
  digests_ = std::move(digests);
}

bool ApiKeys::are_required() const {
  const std::lock_guard lock(mutex_);
  return !digests_.empty();
}

bool ApiKeys::accept(std::string_view authorization) const {
  if (!has_bearer_scheme(authorization)) return false;
  const Digest shown = digest_of(trimmed(authorization.substr(kScheme.size())));
  bool accepted = false;
  const std::lock_guard lock(mutex_);
  for (const Digest& digest : digests_) {
    accepted |= CRYPTO_memcmp(digest.data(), shown.data(), digest.size()) == 0;
  }
  return accepted;
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

}  // namespace pinfer::server
