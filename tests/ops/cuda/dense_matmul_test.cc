// The loader of cuBLASLt and products of many rows, over a library that computes on the CPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "csrc/kernels/dense_matmul_cuda.h"
#include "device_tensor.h"
#include "device_weight.h"

namespace pinfer::cuda {
namespace {

const char* const kFake = PINFER_FAKE_CUBLASLT;

// The fake's own functions. It stays open, so that they count over a whole test.
template <class Function>
Function* fake(const char* name) {
  static void* library = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
void fail(const char* function, int status) {
  fake<void(const char*, int)>("fake_cublaslt_fail")(function, status);
}
int num_objects() { return fake<int()>("fake_cublaslt_objects")(); }
int num_searches() { return fake<int()>("fake_cublaslt_searches")(); }

struct Case {
  int32_t weight_dtype, x_dtype, out_dtype;
  int64_t rows, out_features, in_features, group_size;
};

double rows_error(DenseMatmul& matmul, const Case& c, size_t workspace_bytes) {
  const DeviceWeight w =
      make_weight(c.weight_dtype, c.out_features, c.in_features, c.group_size, 1);
  const DeviceTensor x(random_numbers(c.rows * c.in_features, 2), c.x_dtype);
  DeviceTensor out(c.rows * c.out_features, c.out_dtype);
  const DeviceTensor workspace(static_cast<int64_t>(workspace_bytes / 4), PINFER_FLOAT32);
  EXPECT_EQ(multiply_rows(matmul, x.data(), c.x_dtype, c.rows, w.weight, out.data(), c.out_dtype,
                          workspace.data(), workspace_bytes, nullptr),
            0)
      << pinfer_ops_last_error();
  // Unpacked weights are rounded once more than those of few rows.
  double worst = 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t n = 0; n < c.out_features; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < c.in_features; ++k) {
        const double term =
            w.values[static_cast<size_t>(n * c.in_features + k)] * x[row * c.in_features + k];
        sum += term;
        magnitude += std::fabs(term);
      }
      const double error = std::fabs(out[row * c.out_features + n] - sum);
      worst = std::max(worst, std::isnan(error) ? 1e9 : error / (magnitude / 128 + 1e-6));
    }
  }
  return worst;
}

TEST(DenseMatmul, AllFormats) {
  const auto matmul = DenseMatmul::open({kFake});
  ASSERT_NE(matmul, nullptr) << pinfer_ops_last_error();
  EXPECT_EQ(matmul->version(), 130000u);
  constexpr int32_t f32 = PINFER_FLOAT32, bf16 = PINFER_BFLOAT16, f16 = PINFER_FLOAT16;
  for (const Case& c : {Case{bf16, bf16, bf16, 17, 40, 64, 0}, Case{bf16, f32, f32, 20, 33, 70, 0},
                        Case{f16, f16, f32, 17, 24, 96, 0}, Case{f16, f32, f16, 17, 24, 33, 0},
                        Case{PINFER_FLOAT8_E4M3, bf16, bf16, 18, 50, 72, 0},
                        Case{PINFER_FLOAT8_E4M3, f16, f32, 18, 50, 65, 0},
                        Case{PINFER_INT4, f32, f32, 19, 70, 160, 32},
                        Case{PINFER_INT4, bf16, f32, 3, 20, 160, 64}}) {
    const DeviceWeight w = make_weight(c.weight_dtype, 1, c.in_features, c.group_size, 1);
    Weight shape = w.weight;
    shape.out_features = c.out_features;
    const size_t bytes = multiply_rows_workspace_bytes(c.x_dtype, c.rows, shape);
    EXPECT_LT(rows_error(*matmul, c, bytes), 1);
    // Quantised weights in pieces of 16 outputs.
    if (c.group_size > 0 || c.weight_dtype == PINFER_FLOAT8_E4M3) {
      EXPECT_LT(rows_error(*matmul, c, 2 * 19 * 168 + 16 * 2 * 168 + 512), 1);
    }
  }
}

TEST(DenseMatmul, AsksOnceForAShapeAndLeavesNothing) {
  const int before = num_objects(), searches = num_searches();
  {
    const auto matmul = DenseMatmul::open({kFake});
    ASSERT_NE(matmul, nullptr);
    for (int i = 0; i < 3; ++i) {
      const Case c = {PINFER_BFLOAT16, PINFER_BFLOAT16, PINFER_BFLOAT16, 17, 16, 32, 0};
      EXPECT_LT(rows_error(*matmul, c, 4096), 1);
    }
    EXPECT_EQ(num_searches(), searches + 1);
    EXPECT_EQ(num_objects(), before + 1);
  }
  EXPECT_EQ(num_objects(), before);
}

TEST(DenseMatmul, SaysWhyNoLibraryCanBeUsed) {
  EXPECT_EQ(DenseMatmul::open({"libno_such_library.so.1", "libm.so.6"}), nullptr);
  const std::string why = pinfer_ops_last_error();
  EXPECT_EQ(why.find("cuBLASLt, which products of more than 16 rows need, cannot be used: "), 0u);
  EXPECT_NE(why.find("libno_such_library.so.1: cannot open shared object file"), std::string::npos)
      << why;
  EXPECT_NE(why.find("libm.so.6 has no cublasLtGetVersion"), std::string::npos) << why;
  fail("cublasLtCreate", 1);
  EXPECT_EQ(DenseMatmul::open({kFake}), nullptr);
  EXPECT_NE(std::string(pinfer_ops_last_error()).find("cublasLtCreate returned 1"),
            std::string::npos);
  fail("", 0);
}

TEST(DenseMatmul, ErrorsNameFunctionAndShape) {
  const auto matmul = DenseMatmul::open({kFake});
  ASSERT_NE(matmul, nullptr);
  const DeviceWeight w = make_weight(PINFER_BFLOAT16, 16, 32, 0, 1);
  const DeviceTensor x(random_numbers(20 * 32, 2), PINFER_BFLOAT16);
  DeviceTensor out(20 * 16, PINFER_BFLOAT16);
  const auto run = [&](int32_t out_dtype) {
    return multiply_rows(*matmul, x.data(), PINFER_BFLOAT16, 20, w.weight, out.data(), out_dtype,
                         nullptr, 0, nullptr);
  };
  const int before = num_objects();
  for (const char* function : {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
    fail(function, 13);
    EXPECT_EQ(run(PINFER_BFLOAT16), PINFER_OPS_DEVICE_ERROR);
    EXPECT_EQ(std::string(pinfer_ops_last_error()),
              "dense_matmul: " + std::string(function) +
                  " returned 13 for [20, 32] times [16, 32]^T of dtype 15");
  }
  fail("cublasLtMatrixLayoutCreate", 3);
  EXPECT_EQ(run(PINFER_BFLOAT16), PINFER_OPS_DEVICE_ERROR);
  fail("", 0);
  EXPECT_EQ(num_objects(), before);
  EXPECT_EQ(run(PINFER_FLOAT16), PINFER_OPS_INVALID_ARGUMENT);
  EXPECT_EQ(run(PINFER_BFLOAT16), 0);
}

}  // namespace
}  // namespace pinfer::cuda
