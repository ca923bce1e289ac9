#include "sampler/random_stream.h"

namespace pinfer {
namespace {

constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kNumRounds = 10;

}  // namespace

uint64_t random_bits(uint64_t seed, uint32_t choice_index, uint32_t position) {
  uint32_t c0 = position, c1 = choice_index, c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kNumRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * c0;
    const uint64_t product1 = kMultiplier1 * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return (static_cast<uint64_t>(c1) << 32) | c0;
}

}  // namespace pinfer
