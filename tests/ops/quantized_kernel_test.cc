// Linear layers over int8 and int4 weights: every instruction set against exact integer sums, and
// bit for bit against itself under every division of the work.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "csrc/kernels/quantized_weight.h"
#include "kernel_sets.h"
#include "packing.h"

namespace pinfer {
namespace {

uint16_t to_float16(float x) {
  uint32_t bits;
  const float scaled = std::fabs(x) * 0x1p-112f;
  std::memcpy(&bits, &scaled, sizeof(bits));
  bits = (bits + 0xfff + ((bits >> 13) & 1)) >> 13;
  return static_cast<uint16_t>(bits | (std::signbit(x) ? 0x8000 : 0));
}

float from_float16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x & 0x7fff) << 13;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return (x & 0x8000) != 0 ? -value * 0x1p112f : value * 0x1p112f;
}

// A weight with what its numbers stand for.
struct Weight {
  int64_t n, k, group_size;    // group_size 0: int8
  std::vector<double> values;  // [n, k]
  std::vector<uint8_t> packed;

  Weight(int64_t n_in, int64_t k_in, int64_t group_in) : n(n_in), k(k_in), group_size(group_in) {
    values.resize(static_cast<size_t>(n * k));
    if (group_size == 0) {
      fill_int8();
    } else {
      fill_int4();
    }
  }

  void fill_int8() {
    std::mt19937 generator(3);
    packed.resize(static_cast<size_t>((n + 15) / 16 * Int8Layout::panel_bytes(k)));
    for (int64_t row = 0; row < n; ++row) {
      uint8_t* panel = packed.data() + row / 16 * Int8Layout::panel_bytes(k);
      for (int64_t i = 0; i < k; ++i) {
        uint8_t* block = panel + i / 64 * Int8Layout::kBlockBytes;
        const uint16_t scale = to_float16(0.01f + 0.001f * static_cast<float>((row + i / 32) % 7));
        std::memcpy(block + i % 64 / 32 * 32 + row % 16 * 2, &scale, 2);
        // Both ends often: that is where sums of 16 bits would overflow. Imported weights may hold
        // -128 too.
        const auto kind = generator() % 4;
        const int number = kind == 0   ? 127
                           : kind == 1 ? -128
                                       : static_cast<int>(generator() % 256) - 128;
        values[static_cast<size_t>(row * k + i)] =
            static_cast<double>(from_float16(scale)) * number;
        block[64 + i % 64 / 4 * 64 + row % 16 * 4 + i % 4] = static_cast<uint8_t>(number);
      }
    }
  }

  void fill_int4() {
    std::mt19937 generator(4);
    packed.resize(static_cast<size_t>((n + 15) / 16 * Int4Layout::panel_bytes(k, group_size)));
    for (int64_t row = 0; row < n; ++row) {
      uint8_t* panel = packed.data() + row / 16 * Int4Layout::panel_bytes(k, group_size);
      for (int64_t i = 0; i < k; ++i) {
        uint8_t* group = panel + i / group_size * Int4Layout::block_bytes(group_size);
        const uint16_t scale =
            to_float16(0.003f * static_cast<float>(1 + (row + i / group_size) % 5));
        const uint16_t minimum = to_float16(i / group_size % 2 == 0 ? -0.02f : 1e-6f);
        std::memcpy(group + row % 16 * 2, &scale, 2);
        std::memcpy(group + 32 + row % 16 * 2, &minimum, 2);
        const int nibble = generator() % 3 == 0 ? 15 : static_cast<int>(generator() % 16);
        const int64_t place = i % group_size;
        uint8_t& byte = group[64 + place / 8 * 64 + row % 16 * 4 + place % 4];
        byte = static_cast<uint8_t>(byte | (place % 8 < 4 ? nibble : nibble << 4));
        values[static_cast<size_t>(row * k + i)] =
            static_cast<double>(from_float16(scale)) * nibble + from_float16(minimum);
      }
    }
  }

  const LinearKernel& kernel(const KernelSet& set) const {
    return group_size == 0 ? *set.linear_int8 : *set.linear_int4;
  }
};

std::vector<float> multiply(const LinearKernel& kernel, const Weight& w,
                            const std::vector<float>& x, int64_t row_step, int64_t panel_step) {
  const int64_t rows = static_cast<int64_t>(x.size()) / w.k;
  std::vector<float> out(static_cast<size_t>(rows * w.n), NAN);
  LinearTask task{nullptr, kernel.prepared_row_size(w.k, w.group_size),
                  w.k,     w.packed.data(),
                  w.n,     out.data(),
                  w.n,     w.group_size};
  std::vector<uint8_t> prepared(static_cast<size_t>(rows * task.x_stride));
  for (int64_t row = 0; row < rows; ++row) {
    kernel.prepare(x.data() + row * w.k, w.k, w.group_size, prepared.data() + row * task.x_stride);
  }
  task.x = prepared.data();
  const int64_t num_panels = (w.n + 15) / 16;
  for (int64_t row = 0; row < rows; row += row_step) {
    for (int64_t panel = 0; panel < num_panels; panel += panel_step) {
      kernel.multiply(task, row, std::min(row + row_step, rows), panel,
                      std::min(panel + panel_step, num_panels));
    }
  }
  return out;
}

// A row as the kernels round it: int8 with a scale for every 32 numbers.
std::vector<double> rounded(const float* x, int64_t k) {
  std::vector<double> values(static_cast<size_t>(k));
  for (int64_t begin = 0; begin < k; begin += 32) {
    const int64_t end = std::min<int64_t>(begin + 32, k);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    for (int64_t i = begin; i < end; ++i) {
      const float number = largest == 0 ? 0 : std::nearbyintf(x[i] * (127.0f / largest));
      values[static_cast<size_t>(i)] = static_cast<double>(largest / 127.0f) * number;
    }
  }
  return values;
}

class QuantizedKernelTest : public testing::TestWithParam<KernelSet> {};

TEST_P(QuantizedKernelTest, AgreesWithExactSums) {
  for (int64_t group_size : {0, 32, 128}) {
    for (auto [n, k] :
         {std::pair<int64_t, int64_t>{1, 1}, {16, 3}, {33, 100}, {49, 257}, {80, 576}}) {
      const Weight w(n, k, group_size);
      for (int64_t rows : {1, 2, 3, 4, 5, 8, 9, 17}) {
        std::vector<float> x = random_floats(rows * k, static_cast<unsigned>(rows));
        x[0] = 1;  // and its opposite: the ends of the range of int8
        x[x.size() - 1] = -1;
        const std::vector<float> out = multiply(w.kernel(GetParam()), w, x, rows, 1000);
        for (int64_t row = 0; row < rows; ++row) {
          const std::vector<double> numbers = rounded(x.data() + row * k, k);
          for (int64_t i = 0; i < n; ++i) {
            double sum = 0, magnitude = 0;
            for (int64_t j = 0; j < k; ++j) {
              const double term =
                  numbers[static_cast<size_t>(j)] * w.values[static_cast<size_t>(i * k + j)];
              sum += term;
              magnitude += std::fabs(term);
            }
            ASSERT_NEAR(out[static_cast<size_t>(row * n + i)], sum, 1e-6 * magnitude + 1e-7)
                << "group " << group_size << " row " << row << " output " << i << " of " << rows
                << " x " << k << " x " << n;
          }
        }
      }
    }
  }
}

// The largest sums there can be.
TEST_P(QuantizedKernelTest, DoesNotOverflow) {
  for (int64_t group_size : {0, 32, 128}) {
    const int64_t k = 4096;
    for (float sign : {1.0f, -1.0f}) {
      Weight w(16, k, group_size);
      const uint16_t one = to_float16(1);
      const auto block_bytes = static_cast<size_t>(
          group_size == 0 ? Int8Layout::kBlockBytes : Int4Layout::block_bytes(group_size));
      for (size_t block = 0; block < w.packed.size(); block += block_bytes) {
        // Scales (and minima) of 1, and the largest numbers.
        for (size_t i = 0; i < 64; i += 2) std::memcpy(&w.packed[block + i], &one, 2);
        std::fill(w.packed.begin() + static_cast<int64_t>(block) + 64,
                  w.packed.begin() + static_cast<int64_t>(block + block_bytes),
                  group_size == 0 ? 127 : 0xff);
      }
      const std::vector<float> x(static_cast<size_t>(k), sign);
      const double number = group_size == 0 ? 127 : 15 + 1;
      const double expected = static_cast<double>(sign) * number * static_cast<double>(k);
      const std::vector<float> out = multiply(w.kernel(GetParam()), w, x, 1, 1);
      EXPECT_NEAR(out[0], expected, std::fabs(expected) * 1e-5) << group_size;
      EXPECT_NEAR(out[15], expected, std::fabs(expected) * 1e-5) << group_size;
    }
  }
}

TEST_P(QuantizedKernelTest, AnyDivisionGivesTheSameBits) {
  for (int64_t group_size : {0, 32, 128}) {
    const Weight w(16 * 11 + 5, 601, group_size);
    const std::vector<float> x = random_floats(110 * 601, 1);
    const std::vector<float> whole = multiply(w.kernel(GetParam()), w, x, 110, 1000);
    for (int64_t row_step : {1, 2, 3, 5, 8, 13, 96}) {
      for (int64_t panel_step : {1, 3, 8}) {
        const std::vector<float> divided =
            multiply(w.kernel(GetParam()), w, x, row_step, panel_step);
        ASSERT_EQ(std::memcmp(whole.data(), divided.data(), whole.size() * 4), 0)
            << "group " << group_size << " rows " << row_step << " panels " << panel_step;
      }
    }
  }
}

TEST_P(QuantizedKernelTest, NonFiniteRowsStayAlone) {
  for (int64_t group_size : {0, 32}) {
    const Weight w(24, 40, group_size);
    std::vector<float> x = random_floats(13 * 40, 1);
    const std::vector<float> clean = multiply(w.kernel(GetParam()), w, x, 13, 1000);
    x[5 * 40 + 3] = NAN;
    x[7 * 40 + 39] = INFINITY;
    x[8 * 40 + 1] = -NAN;
    for (size_t i = 9 * 40; i < 10 * 40; ++i) x[i] = 0;
    for (size_t i = 10 * 40; i < 11 * 40; ++i) x[i] = 1e-38f;
    const std::vector<float> out = multiply(w.kernel(GetParam()), w, x, 13, 1000);
    for (int64_t row = 0; row < 13; ++row) {
      for (int64_t i = row * 24; i < row * 24 + 24; ++i) {
        const float value = out[static_cast<size_t>(i)];
        if (row == 5 || row == 7 || row == 8) {
          EXPECT_FALSE(std::isfinite(value)) << row;
        } else if (row == 9 || row == 10) {
          EXPECT_EQ(value, 0) << row;
        } else {
          EXPECT_EQ(value, clean[static_cast<size_t>(i)]) << row;
        }
      }
    }
  }
}

std::string set_name(const testing::TestParamInfo<KernelSet>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Sets, QuantizedKernelTest, testing::ValuesIn(available_kernel_sets()),
                         set_name);

}  // namespace
}  // namespace pinfer
