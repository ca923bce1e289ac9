// Random weights in the layouts of csrc/kernels/kernels_cuda.h, written here as it states them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "csrc/kernels/kernels_cuda.h"
#include "device_tensor.h"

namespace pinfer::cuda {

struct DeviceWeight {
  std::vector<double> values;  // [out_features, in_features], what the weight stands for
  DeviceTensor numbers, scales, minima;
  Weight weight;
};

inline DeviceWeight make_weight(int32_t dtype, int64_t out_features, int64_t in_features,
                                int64_t group_size, unsigned seed) {
  DeviceWeight w;
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const int64_t padded = padded_in_features(dtype, in_features);
  w.weight = {nullptr, dtype, out_features, in_features, nullptr, nullptr, group_size};
  if (dtype == PINFER_INT4) {
    const int64_t groups = num_weight_groups(in_features, group_size);
    w.scales = DeviceTensor(out_features * groups, PINFER_FLOAT16);
    w.minima = DeviceTensor(out_features * groups, PINFER_FLOAT16);
    for (int64_t i = 0; i < out_features * groups; ++i) {
      w.scales.set(i, 0.05f + 0.05f * uniform(random));
      w.minima.set(i, 0.5f * uniform(random));
    }
    // Aligned, as every tensor of the device.
    w.numbers = DeviceTensor(out_features * padded / 8, PINFER_FLOAT32);
    auto* words = static_cast<uint32_t*>(w.numbers.data());
    std::memset(words, 0, w.numbers.bytes());
    for (int64_t row = 0; row < out_features; ++row) {
      for (int64_t k = 0; k < in_features; ++k) {
        const uint32_t nibble = random() % 16;
        const int64_t j = k % 128 / 32, t = k % 32 / 8, i = k % 8;
        words[row * padded / 8 + k / 128 * 16 + 4 * t + j] |=
            nibble << (i % 2 == 0 ? 2 * i : 16 + 2 * (i - 1));
        const int64_t group = row * groups + k / group_size;
        w.values.push_back(static_cast<double>(w.scales[group]) * nibble + w.minima[group]);
      }
    }
    w.weight.minima = w.minima.data();
  } else {
    w.numbers = DeviceTensor(std::vector<float>(static_cast<size_t>(out_features * padded)), dtype);
    if (dtype == PINFER_FLOAT8_E4M3) {
      w.scales = DeviceTensor(out_features, PINFER_FLOAT32);
      for (int64_t row = 0; row < out_features; ++row) {
        w.scales.set(row, 0.01f + 0.005f * uniform(random));
      }
    }
    for (int64_t row = 0; row < out_features; ++row) {
      for (int64_t k = 0; k < in_features; ++k) {
        w.numbers.set(row * padded + k, uniform(random) * (w.scales.count() > 0 ? 100.0f : 1.0f));
        const double scale = w.scales.count() > 0 ? w.scales[row] : 1.0;
        w.values.push_back(scale * w.numbers[row * padded + k]);
      }
    }
  }
  w.weight.data = w.numbers.data();
  w.weight.scales = w.scales.data();
  return w;
}

inline std::vector<float> random_numbers(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace pinfer::cuda
