// Softmax, gates and sums of experts on every instruction set, against doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "csrc/ops.h"
#include "kernel_sets.h"
#include "packing.h"

namespace pinfer {
namespace {

constexpr int64_t kSizes[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 130};
constexpr float kUntouched = 12345.0f;

class MoeKernelTest : public testing::TestWithParam<KernelSet> {
 protected:
  const MoeKernel& kernel() const { return *GetParam().moe; }
};

double activate(int activation, double x) {
  switch (activation) {
    case PINFER_SILU:
      return x / (1 + std::exp(-x));
    case PINFER_GELU:
      return x / 2 * (1 + std::erf(x * std::sqrt(0.5)));
    default:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }
}

TEST_P(MoeKernelTest, SoftmaxAgreesWithDoubles) {
  for (int64_t n : kSizes) {
    std::vector<float> logits = random_floats(n, static_cast<unsigned>(n));
    for (float& logit : logits) logit *= 20;
    std::vector<float> out(static_cast<size_t>(n + 1), kUntouched);
    kernel().softmax(logits.data(), n, out.data());
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - largest);
    for (size_t i = 0; i < logits.size(); ++i) {
      // A difference of up to 40 is rounded to half of 2^-18.
      const double expected = std::exp(logits[i] - largest) / sum;
      EXPECT_NEAR(out[i], expected, 3e-6 * expected) << n << ": " << i;
    }
    EXPECT_EQ(out[static_cast<size_t>(n)], kUntouched);
  }
}

TEST_P(MoeKernelTest, SoftmaxOfNonFiniteLogits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t n : {1, 5, 16, 21}) {
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      for (float value : {NAN, kInfinity}) {
        std::vector<float> row(static_cast<size_t>(n), 0.5f);
        row[static_cast<size_t>(at)] = value;
        kernel().softmax(row.data(), n, row.data());
        for (float p : row) EXPECT_TRUE(std::isnan(p)) << n << ": " << value << " at " << at;
      }
    }
  }
  std::vector<float> row = {-kInfinity, 1.0f, -kInfinity, 1.0f, -kInfinity};
  kernel().softmax(row.data(), 5, row.data());
  EXPECT_EQ(row, (std::vector<float>{0, 0.5f, 0, 0.5f, 0}));
}

TEST_P(MoeKernelTest, GatesAgreeWithDoubles) {
  for (int activation : {PINFER_SILU, PINFER_GELU, PINFER_GELU_TANH}) {
    for (int64_t n : kSizes) {
      std::vector<float> gate = random_floats(n, static_cast<unsigned>(n));
      for (float& x : gate) x *= 6;
      const std::vector<float> up = random_floats(n, 2);
      std::vector<float> out(static_cast<size_t>(n + 1), kUntouched);
      kernel().gate[activation](gate.data(), up.data(), n, out.data());
      for (size_t i = 0; i < gate.size(); ++i) {
        // 1 + erf and 1 + tanh lose digits where they are near -1.
        const double expected = activate(activation, gate[i]) * up[i];
        EXPECT_NEAR(out[i], expected, 4e-7 * std::fabs(expected) + 6e-7)
            << activation << ": " << gate[i];
      }
      EXPECT_EQ(out[static_cast<size_t>(n)], kUntouched);
      gate.push_back(kUntouched);
      kernel().gate[activation](gate.data(), up.data(), n, gate.data());
      EXPECT_EQ(gate, out) << "in place";
    }
  }
}

// A number's result depends on it alone, not on its place in a vector.
TEST_P(MoeKernelTest, PlacesDoNotMatter) {
  const std::vector<float> gate = random_floats(37, 1), up = random_floats(37, 2);
  for (int activation : {PINFER_SILU, PINFER_GELU, PINFER_GELU_TANH}) {
    std::vector<float> out(37), sums(37, 1.0f);
    kernel().gate[activation](gate.data(), up.data(), 37, out.data());
    kernel().accumulate(0.3f, gate.data(), 37, sums.data());
    for (size_t i = 0; i < 37; ++i) {
      float alone = 0, sum = 1;
      kernel().gate[activation](&gate[i], &up[i], 1, &alone);
      EXPECT_EQ(alone, out[i]) << activation << ": " << i;
      kernel().accumulate(0.3f, &gate[i], 1, &sum);
      EXPECT_EQ(sum, sums[i]) << i;
    }
  }
}

TEST_P(MoeKernelTest, SumsAgreeWithDoubles) {
  for (int64_t n : kSizes) {
    const std::vector<float> row = random_floats(n, 1), before = random_floats(n, 2);
    std::vector<float> sum = before;
    sum.push_back(kUntouched);
    kernel().accumulate(0.7f, row.data(), n, sum.data());
    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_NEAR(sum[i], before[i] + 0.7 * row[i], 3e-7) << n << ": " << i;
    }
    EXPECT_EQ(sum.back(), kUntouched);
  }
}

std::string set_name(const testing::TestParamInfo<KernelSet>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Sets, MoeKernelTest, testing::ValuesIn(available_kernel_sets()), set_name);

}  // namespace
}  // namespace pinfer
