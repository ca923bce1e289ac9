// Test data: random numbers, bfloat16, and the packed layout written as csrc/ops.h states it.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace pinfer {

inline std::vector<float> random_floats(int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = distribution(generator);
  return values;
}

// To nearest even; finite numbers only.
inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float from_bfloat16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// [ceil(n / 16), k, 16]
inline std::vector<uint8_t> pack_float32(const std::vector<float>& weight, int64_t n, int64_t k) {
  std::vector<float> packed(static_cast<size_t>((n + 15) / 16 * 16 * k));
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      packed[static_cast<size_t>((row / 16 * k + i) * 16 + row % 16)] =
          weight[static_cast<size_t>(row * k + i)];
    }
  }
  std::vector<uint8_t> bytes(packed.size() * sizeof(float));
  std::memcpy(bytes.data(), packed.data(), bytes.size());
  return bytes;
}

// [ceil(n / 16), ceil(k / 2), 16, 2]
inline std::vector<uint8_t> pack_bfloat16(const std::vector<float>& weight, int64_t n, int64_t k) {
  const int64_t pairs = (k + 1) / 2;
  std::vector<uint16_t> packed(static_cast<size_t>((n + 15) / 16 * pairs * 32));
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      packed[static_cast<size_t>(((row / 16 * pairs + i / 2) * 16 + row % 16) * 2 + i % 2)] =
          to_bfloat16(weight[static_cast<size_t>(row * k + i)]);
    }
  }
  std::vector<uint8_t> bytes(packed.size() * sizeof(uint16_t));
  std::memcpy(bytes.data(), packed.data(), bytes.size());
  return bytes;
}

}  // namespace pinfer
