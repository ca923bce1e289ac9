// The keys that requests must show.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace pinfer::server {

// Keeps digests only. Thread-safe.
class ApiKeys {
 public:
  // The keys and those of the file (one a line; empty lines and lines that begin with # are passed
  // over; "" for no file) replace all earlier ones. Throws std::runtime_error, with the earlier
  // ones kept, for a file that cannot be read or holds none, and for an empty key.
  void load(const std::vector<std::string>& keys, const std::string& file);

  // Whether requests need a key at all.
  bool are_required() const;

  // `authorization`: the header's value, "Bearer KEY". Takes the same time whatever the key is.
  bool accept(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest_of(std::string_view key);

  mutable std::mutex mutex_;
  std::vector<Digest> digests_;
};

}  // namespace pinfer::server
