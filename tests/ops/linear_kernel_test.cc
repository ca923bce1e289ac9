// The linear kernels of every instruction set against sums in double, and bit for bit against
// themselves under every division of the work.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernel_sets.h"
#include "packing.h"

namespace pinfer {
namespace {

struct Problem {
  int64_t rows, k, n;
  bool is_bfloat16;
  std::vector<float> x;       // [rows, k]
  std::vector<float> weight;  // [n, k], exact in the weight's dtype
  std::vector<uint8_t> packed;

  Problem(int64_t rows_in, int64_t k_in, int64_t n_in, bool is_bfloat16_in)
      : rows(rows_in), k(k_in), n(n_in), is_bfloat16(is_bfloat16_in) {
    x = random_floats(rows * k, 1);
    weight = random_floats(n * k, 2);
    if (is_bfloat16) {
      for (float& value : weight) value = from_bfloat16(to_bfloat16(value));
    }
    packed = is_bfloat16 ? pack_bfloat16(weight, n, k) : pack_float32(weight, n, k);
  }

  const LinearKernel& kernel(const KernelSet& set) const {
    return is_bfloat16 ? *set.linear_bfloat16 : *set.linear_float32;
  }
};

// Runs the kernel with rows and panels cut into pieces of these sizes.
std::vector<float> multiply(const LinearKernel& kernel, const Problem& p, int64_t row_step,
                            int64_t panel_step) {
  std::vector<float> out(static_cast<size_t>(p.rows * p.n), NAN);
  LinearTask task{p.x.data(), p.k * 4, p.k, p.packed.data(), p.n, out.data(), p.n};
  std::vector<uint8_t> prepared;
  if (kernel.prepare != nullptr) {
    task.x_stride = kernel.prepared_row_size(p.k, 0);
    prepared.resize(static_cast<size_t>(p.rows * task.x_stride));
    for (int64_t row = 0; row < p.rows; ++row) {
      kernel.prepare(p.x.data() + row * p.k, p.k, 0, prepared.data() + row * task.x_stride);
    }
    task.x = prepared.data();
  }
  const int64_t num_panels = (p.n + 15) / 16;
  for (int64_t row = 0; row < p.rows; row += row_step) {
    for (int64_t panel = 0; panel < num_panels; panel += panel_step) {
      kernel.multiply(task, row, std::min(row + row_step, p.rows), panel,
                      std::min(panel + panel_step, num_panels));
    }
  }
  return out;
}

void expect_close(const Problem& p, const std::vector<float>& out) {
  for (int64_t row = 0; row < p.rows; ++row) {
    for (int64_t output = 0; output < p.n; ++output) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < p.k; ++i) {
        const float value = p.x[static_cast<size_t>(row * p.k + i)];
        const double x = p.is_bfloat16 ? from_bfloat16(to_bfloat16(value)) : value;
        const double term = x * p.weight[static_cast<size_t>(output * p.k + i)];
        sum += term;
        magnitude += std::fabs(term);
      }
      const float got = out[static_cast<size_t>(row * p.n + output)];
      ASSERT_NEAR(got, sum, 1e-6 * magnitude + 1e-30)
          << "row " << row << " output " << output << " of " << p.rows << " x " << p.k << " x "
          << p.n;
    }
  }
}

class LinearKernelTest : public testing::TestWithParam<KernelSet> {};

TEST_P(LinearKernelTest, AgreesWithSumsInDouble) {
  for (bool is_bfloat16 : {false, true}) {
    for (int64_t rows : {1, 2, 3, 6, 7, 12, 13, 17}) {
      for (auto [k, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 16}, {100, 33}, {257, 49}}) {
        const Problem p(rows, k, n, is_bfloat16);
        expect_close(p, multiply(p.kernel(GetParam()), p, rows, 1000));
      }
    }
  }
}

TEST_P(LinearKernelTest, AnyDivisionGivesTheSameBits) {
  for (bool is_bfloat16 : {false, true}) {
    const Problem p(110, 601, 16 * 11 + 5, is_bfloat16);  // more than one block of rows and of k
    const std::vector<float> whole = multiply(p.kernel(GetParam()), p, p.rows, 1000);
    for (int64_t row_step : {1, 2, 3, 5, 6, 8, 13, 96}) {
      for (int64_t panel_step : {1, 3, 8, 1000}) {
        const std::vector<float> divided = multiply(p.kernel(GetParam()), p, row_step, panel_step);
        ASSERT_EQ(std::memcmp(whole.data(), divided.data(), whole.size() * 4), 0)
            << (is_bfloat16 ? "bfloat16" : "float32") << " rows " << row_step << " panels "
            << panel_step;
      }
    }
  }
}

TEST_P(LinearKernelTest, NonFiniteRowsStayAlone) {
  for (bool is_bfloat16 : {false, true}) {
    Problem p(13, 40, 24, is_bfloat16);
    const std::vector<float> clean = multiply(p.kernel(GetParam()), p, p.rows, 1000);
    p.x[5 * 40 + 3] = NAN;
    p.x[7 * 40 + 39] = INFINITY;
    const std::vector<float> out = multiply(p.kernel(GetParam()), p, p.rows, 1000);
    for (int64_t row = 0; row < 13; ++row) {
      for (int64_t i = row * 24; i < row * 24 + 24; ++i) {
        if (row == 5 || row == 7) {
          EXPECT_FALSE(std::isfinite(out[static_cast<size_t>(i)])) << row;
        } else {
          EXPECT_EQ(out[static_cast<size_t>(i)], clean[static_cast<size_t>(i)]) << row;
        }
      }
    }
  }
}

std::string set_name(const testing::TestParamInfo<KernelSet>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Sets, LinearKernelTest, testing::ValuesIn(available_kernel_sets()),
                         set_name);

}  // namespace
}  // namespace pinfer
