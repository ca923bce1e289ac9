// Few rows, gathered rows and argmax against plain sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "csrc/kernels/kernels_cuda.h"
#include "cuda_emulation.h"
#include "device_tensor.h"
#include "device_weight.h"

namespace pinfer::cuda {
namespace {

constexpr int32_t kWeightDtypes[] = {PINFER_BFLOAT16, PINFER_FLOAT16, PINFER_FLOAT8_E4M3,
                                     PINFER_INT4};
constexpr int32_t kActivations[] = {PINFER_FLOAT32, PINFER_BFLOAT16, PINFER_FLOAT16};

// In what x is multiplied; 0 where the kernels have no such combination.
int32_t product_dtype(int32_t weight, int32_t x) {
  if (weight == PINFER_BFLOAT16) return x == PINFER_FLOAT16 ? 0 : PINFER_BFLOAT16;
  if (weight == PINFER_FLOAT16) return x == PINFER_BFLOAT16 ? 0 : PINFER_FLOAT16;
  return x == PINFER_FLOAT16 ? PINFER_FLOAT16 : PINFER_BFLOAT16;
}

struct LinearCase {
  int32_t weight_dtype, x_dtype, out_dtype;
  int64_t rows, out_features, in_features, group_size;

  std::string name() const {
    return std::string(dtype_name(weight_dtype)) + " x " + dtype_name(x_dtype) + " rows " +
           std::to_string(rows) + " n " + std::to_string(out_features) + " k " +
           std::to_string(in_features) + " group " + std::to_string(group_size);
  }
};

// The largest error, in units of what rounding of the output allows.
double linear_error(const LinearCase& c, unsigned seed) {
  emulation::set_seed(seed);
  const DeviceWeight w =
      make_weight(c.weight_dtype, c.out_features, c.in_features, c.group_size, seed);
  const DeviceTensor x(random_numbers(c.rows * c.in_features, seed + 1), c.x_dtype);
  DeviceTensor out(c.rows * c.out_features, c.out_dtype);
  EXPECT_EQ(
      multiply_few_rows(x.data(), c.x_dtype, c.rows, w.weight, out.data(), c.out_dtype, nullptr), 0)
      << pinfer_ops_last_error();
  const int32_t product = product_dtype(c.weight_dtype, c.x_dtype);
  const double rounding = c.out_dtype == PINFER_FLOAT32    ? 0
                          : c.out_dtype == PINFER_BFLOAT16 ? 1.0 / 256
                                                           : 1.0 / 2048;
  double worst = 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t n = 0; n < c.out_features; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < c.in_features; ++k) {
        const double term = w.values[static_cast<size_t>(n * c.in_features + k)] *
                            rounded(x[row * c.in_features + k], product);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double error = std::fabs(out[row * c.out_features + n] - sum);
      const double allowed = rounding * std::fabs(sum) + 2e-6 * magnitude + 1e-6;
      worst = std::isnan(error) ? 1e9 : std::max(worst, error / allowed);
    }
  }
  return worst;
}

TEST(LinearCuda, AllFormatsAndOddSizes) {
  for (const int32_t weight : kWeightDtypes) {
    for (const int32_t x : kActivations) {
      if (product_dtype(weight, x) == 0) continue;
      const int64_t group = weight == PINFER_INT4 ? 32 : 0;
      for (const LinearCase& c : {LinearCase{weight, x, PINFER_FLOAT32, 1, 33, 300, group},
                                  LinearCase{weight, x, x, 7, 16, 72, group},
                                  LinearCase{weight, x, x, 9, 5, 129, 4 * group},
                                  LinearCase{weight, x, PINFER_FLOAT32, 16, 17, 1, group}}) {
        EXPECT_LT(linear_error(c, 1), 1) << c.name();
      }
    }
  }
}

TEST(LinearCuda, SeedsOfThreadOrder) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const LinearCase c = {PINFER_FLOAT8_E4M3, PINFER_BFLOAT16, PINFER_BFLOAT16, 3, 20, 640, 0};
    EXPECT_LT(linear_error(c, seed), 1) << seed;
  }
}

TEST(LinearCuda, RowsDoNotDependOnEachOther) {
  const DeviceWeight w = make_weight(PINFER_INT4, 24, 256, 32, 5);
  const DeviceTensor x(random_numbers(16 * 256, 6), PINFER_FLOAT32);
  DeviceTensor all(16 * 24, PINFER_FLOAT32), one(24, PINFER_FLOAT32);
  ASSERT_EQ(multiply_few_rows(x.data(), PINFER_FLOAT32, 16, w.weight, all.data(), PINFER_FLOAT32,
                              nullptr),
            0);
  for (int64_t row = 0; row < 16; row += 5) {
    const auto* begin = static_cast<const float*>(x.data()) + row * 256;
    ASSERT_EQ(
        multiply_few_rows(begin, PINFER_FLOAT32, 1, w.weight, one.data(), PINFER_FLOAT32, nullptr),
        0);
    for (int64_t n = 0; n < 24; ++n) EXPECT_EQ(one[n], all[row * 24 + n]);
  }
}

TEST(LinearCuda, FindsARemovedBarrierAndTooLittleSharedMemory) {
  const LinearCase c = {PINFER_BFLOAT16, PINFER_BFLOAT16, PINFER_FLOAT32, 4, 16, 512, 0};
  emulation::plant({.barrier = 0});
  for (unsigned seed = 0; seed < 3; ++seed) EXPECT_GT(linear_error(c, seed), 1) << seed;
#if !defined(__SANITIZE_ADDRESS__)
  emulation::plant({.missing_bytes = 4});
  EXPECT_THROW(linear_error(c, 0), emulation::Fault);
#endif
  emulation::plant({});
}

TEST(LinearCudaSlow, Matrix) {
  for (const int32_t weight : kWeightDtypes) {
    for (const int32_t x : kActivations) {
      if (product_dtype(weight, x) == 0) continue;
      for (int64_t rows = 1; rows <= 16; ++rows) {
        for (const int64_t k : {1, 7, 8, 31, 32, 33, 64, 127, 128, 129, 576, 1000}) {
          for (const int64_t group : {32, 64, 128}) {
            if (weight != PINFER_INT4 && group != 32) continue;
            const LinearCase c = {weight,
                                  x,
                                  rows % 2 ? x : PINFER_FLOAT32,
                                  rows,
                                  15 + rows % 3 * 9,
                                  k,
                                  weight == PINFER_INT4 ? group : 0};
            EXPECT_LT(linear_error(c, static_cast<unsigned>(rows)), 1) << c.name();
          }
        }
      }
    }
  }
}

TEST(LinearCuda, RefusesWhatItCannotDo) {
  const DeviceWeight w = make_weight(PINFER_BFLOAT16, 4, 32, 0, 1);
  float x[32 * 20] = {}, out[4 * 20];
  const auto run = [&](int32_t x_dtype, int64_t rows, const Weight& weight) {
    return multiply_few_rows(x, x_dtype, rows, weight, out, PINFER_FLOAT32, nullptr);
  };
  EXPECT_EQ(run(PINFER_FLOAT32, 0, w.weight), 0);
  EXPECT_EQ(run(PINFER_FLOAT32, 17, w.weight), PINFER_OPS_INVALID_ARGUMENT);
  EXPECT_STREQ(pinfer_ops_last_error(), "multiply_few_rows: num_tokens must be 0 to 16, got 17");
  EXPECT_EQ(run(PINFER_FLOAT16, 1, w.weight), PINFER_OPS_INVALID_ARGUMENT);
  Weight bad = w.weight;
  bad.dtype = PINFER_INT8;
  EXPECT_EQ(run(PINFER_FLOAT32, 1, bad), PINFER_OPS_INVALID_ARGUMENT);
  bad = w.weight;
  bad.group_size = 32;
  EXPECT_EQ(run(PINFER_FLOAT32, 1, bad), PINFER_OPS_INVALID_ARGUMENT);
  EXPECT_STREQ(pinfer_ops_last_error(),
               "multiply_few_rows: group_size must be 32 or a power of 2 above for int4 and 0 for "
               "other weights, got 32");
}

TEST(GatherCuda, RowsOfEveryFormat) {
  for (const int32_t dtype : kWeightDtypes) {
    for (const int64_t k : {40, 129}) {
      const DeviceWeight w = make_weight(dtype, 9, k, dtype == PINFER_INT4 ? 32 : 0, 3);
      const std::vector<int32_t> ids = {8, 0, 3, 3};
      const int64_t stride = k + 3;
      for (const bool by_id : {true, false}) {
        DeviceTensor out(4 * stride, PINFER_FLOAT32);
        ASSERT_EQ(gather_rows(w.weight, by_id ? ids.data() : nullptr, 2, 4, out.data(),
                              PINFER_FLOAT32, stride, nullptr),
                  0);
        for (int64_t row = 0; row < 4; ++row) {
          const int64_t from = by_id ? ids[static_cast<size_t>(row)] : 2 + row;
          for (int64_t i = 0; i < stride; ++i) {
            const double expected = i < k ? w.values[static_cast<size_t>(from * k + i)] : 0;
            EXPECT_NEAR(out[row * stride + i], expected, 1e-6) << dtype_name(dtype);
          }
        }
      }
      DeviceTensor out(4 * k, PINFER_BFLOAT16);
      ASSERT_EQ(gather_rows(w.weight, ids.data(), 0, 4, out.data(), PINFER_BFLOAT16, k, nullptr),
                0);
      EXPECT_EQ(out[0],
                rounded(static_cast<float>(w.values[static_cast<size_t>(8 * k)]), PINFER_BFLOAT16));
    }
  }
}

TEST(ArgmaxCuda, LowestOfEqualsAndNoNumbers) {
  constexpr int64_t kVocab = 5000, kStride = 5003;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits = random_numbers(6 * kStride, 1);
  for (int64_t row = 0; row < 6; ++row) logits[static_cast<size_t>(row * kStride + kVocab)] = 99;
  logits[4321] = logits[77] = 50;
  logits[kStride + 4999] = 50;
  logits[2 * kStride + 600] = std::nanf("");
  logits[3 * kStride + 600] = kInfinity;
  std::fill_n(logits.begin() + 4 * kStride, kVocab, -kInfinity);
  std::fill_n(logits.begin() + 5 * kStride, kVocab, -kInfinity);
  logits[5 * kStride + 2] = -3;
  for (unsigned seed = 0; seed < 3; ++seed) {
    emulation::set_seed(seed);
    std::vector<int32_t> ids(6, -2);
    ASSERT_EQ(argmax(logits.data(), 6, kVocab, kStride, ids.data(), nullptr), 0);
    EXPECT_EQ(ids, (std::vector<int32_t>{77, 4999, -1, -1, -1, 2}));
  }
}

TEST(ArgmaxCuda, FindsARemovedBarrier) {
  const std::vector<float> logits = random_numbers(4000, 2);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  emulation::plant({.barrier = 0});
  int wrong = 0;
  for (unsigned seed = 0; seed < 6; ++seed) {
    emulation::set_seed(seed);
    int32_t id = -2;
    EXPECT_EQ(argmax(logits.data(), 1, 4000, 4000, &id, nullptr), 0);
    wrong += id != best;
  }
  emulation::plant({});
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace pinfer::cuda
