// Vector functions against double libm, over samples of all floats, and at the special values.
#include "csrc/vector_math/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernel_sets.h"

namespace pinfer {
namespace {

struct Reference {
  const char* name;
  double (*function)(double);
  double max_ulp;  // the bound that vector_math.h states
};

const Reference kReferences[] = {
    {"exp", std::exp, 1.0},     {"exp2", std::exp2, 0.6}, {"expm1", std::expm1, 0.6},
    {"log", std::log, 0.6},     {"log2", std::log2, 0.6}, {"log10", std::log10, 0.6},
    {"log1p", std::log1p, 0.6}, {"tanh", std::tanh, 0.6}, {"erf", std::erf, 0.6},
    {"sin", std::sin, 0.6},     {"cos", std::cos, 0.6},   {"tan", std::tan, 0.6},
};

const Reference* find_reference(const std::string& name) {
  for (const Reference& reference : kReferences) {
    if (name == reference.name) return &reference;
  }
  return nullptr;
}

// Distance from the exact value in units of the float spacing there; inf if NaN or inf differ.
double ulp_error(float got, double exact) {
  const double limit = std::ldexp(1.0 - 0x1p-25, 128);  // rounds to infinity from here on
  if (std::isnan(exact)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isnan(got)) return INFINITY;
  if (std::fabs(exact) >= limit) {
    if (std::isinf(got) && std::signbit(got) == std::signbit(exact)) return 0;
    return std::isinf(exact) ? INFINITY : std::fabs(got - exact) / std::ldexp(1.0, 104);
  }
  int exponent;
  std::frexp(exact, &exponent);
  if (exponent < -125) exponent = -125;
  const double spacing = std::ldexp(1.0, exponent - 24);
  if (std::isinf(got)) return (limit - std::fabs(exact)) / spacing + 0.5;
  return std::fabs(got - exact) / spacing;
}

std::vector<float> evaluate(const VectorFunctionTable& table, const VectorFunction& function,
                            std::vector<float> in) {
  const auto lanes = static_cast<size_t>(table.num_lanes);
  in.resize((in.size() + lanes - 1) / lanes * lanes, 1.0f);
  std::vector<float> out(in.size());
  for (size_t i = 0; i < in.size(); i += lanes) function.apply(&in[i], &out[i]);
  return out;
}

class VectorMathTest : public testing::TestWithParam<VectorFunctionSet> {};

TEST_P(VectorMathTest, ErrorIsBelowTheStatedBound) {
  const VectorFunctionTable& table = *GetParam().table;
  std::vector<float> in;
  constexpr uint64_t kStep = 4099;  // a prime: all exponents, about a million values
  for (uint64_t bits = 0; bits < (1ull << 32); bits += kStep) {
    const auto word = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &word, sizeof(value));
    in.push_back(value);
  }
  // Where models use them.
  for (int i = -200000; i <= 200000; ++i) in.push_back(static_cast<float>(i) * 1e-4f);
  for (int i = 0; i < table.num_functions; ++i) {
    const VectorFunction& function = table.functions[i];
    const Reference* reference = find_reference(function.name);
    ASSERT_NE(reference, nullptr) << function.name;
    const std::vector<float> out = evaluate(table, function, in);
    double worst = 0;
    float worst_at = 0;
    for (size_t j = 0; j < in.size(); ++j) {
      const double error = ulp_error(out[j], reference->function(in[j]));
      if (!(error <= worst)) {
        worst = error;
        worst_at = in[j];
      }
    }
    EXPECT_LE(worst, reference->max_ulp) << function.name << " at " << worst_at;
    RecordProperty(std::string(function.name) + "_ulp", std::to_string(worst));
  }
}

TEST_P(VectorMathTest, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  const VectorFunctionTable& table = *GetParam().table;
  const std::vector<float> in = {
      0.0f,     -0.0f, kInf,  -kInf,   NAN,          kDenormal, -kDenormal,  3.4e38f,
      -3.4e38f, 88.7f, 88.8f, -103.9f, -104.1f,      -87.4f,    1e10f,       -1e10f,
      1e38f,    1.0f,  -1.0f, 0.5f,    1.17549e-38f, -2.0f,     16777216.0f, 1073741824.0f};
  for (int i = 0; i < table.num_functions; ++i) {
    const VectorFunction& function = table.functions[i];
    const Reference* reference = find_reference(function.name);
    ASSERT_NE(reference, nullptr);
    const std::vector<float> out = evaluate(table, function, in);
    for (size_t j = 0; j < in.size(); ++j) {
      const double exact = reference->function(in[j]);
      EXPECT_LE(ulp_error(out[j], exact), reference->max_ulp)
          << function.name << "(" << in[j] << ") = " << out[j] << ", expected " << exact;
    }
  }
}

TEST_P(VectorMathTest, SignOfZeroIsKept) {
  const VectorFunctionTable& table = *GetParam().table;
  for (int i = 0; i < table.num_functions; ++i) {
    const VectorFunction& function = table.functions[i];
    const std::string name = function.name;
    if (name != "tanh" && name != "erf" && name != "sin" && name != "tan") continue;
    const std::vector<float> out = evaluate(table, function, {0.0f, -0.0f});
    EXPECT_FALSE(std::signbit(out[0])) << name;
    EXPECT_TRUE(std::signbit(out[1])) << name;
  }
}

std::string set_name(const testing::TestParamInfo<VectorFunctionSet>& info) {
  return info.param.name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VectorMathTest);
INSTANTIATE_TEST_SUITE_P(Sets, VectorMathTest, testing::ValuesIn(available_vector_function_sets()),
                         set_name);

#if defined(__x86_64__)
TEST(VectorMathLookupTest, KnowsWhatArtifactsAskFor) {
  for (const char* name :
       {"Sleef_expf8_u10", "Sleef_expf16_u10", "Sleef_logf8_u10", "Sleef_logf16_u10",
        "Sleef_sinf8_u10", "Sleef_sinf8_u35", "Sleef_cosf8_u10", "Sleef_cosf16_u35",
        "Sleef_tanhf8_u10", "Sleef_tanhf16_u10", "Sleef_erff8_u10", "Sleef_erff16_u10",
        "Sleef_exp2f8_u10", "Sleef_expm1f8_u10", "Sleef_log1pf16_u10"}) {
    EXPECT_NE(find_vector_function(name), nullptr) << name;
  }
  EXPECT_EQ(find_vector_function("Sleef_expf4_u10"), nullptr);
  EXPECT_EQ(find_vector_function("Sleef_expf8_u35"), nullptr);
  EXPECT_EQ(find_vector_function(""), nullptr);
}

TEST(VectorMathLookupTest, NamesAreDistinctAndFound) {
  const std::vector<std::string> names = vector_function_names();
  EXPECT_GE(names.size(), 24u);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_NE(find_vector_function(names[i]), nullptr) << names[i];
    for (size_t j = 0; j < i; ++j) EXPECT_NE(names[i], names[j]);
  }
}

// The vector type in ymm0, as generated code passes it.
typedef float Float8 __attribute__((vector_size(32)));

__attribute__((target("avx2"), noinline)) void call_with_vector(void* function, const float* in,
                                                                float* out) {
  Float8 x;
  std::memcpy(&x, in, sizeof(x));
  x = reinterpret_cast<Float8 (*)(Float8)>(function)(x);
  std::memcpy(out, &x, sizeof(x));
}

TEST(VectorMathLookupTest, CallingConvention) {
  if (!is_supported(Isa::AVX2)) GTEST_SKIP() << "this processor has no AVX2";
  const float in[8] = {-2, -1, -0.5f, 0, 0.25f, 1, 2, 3};
  float out[8];
  call_with_vector(find_vector_function("Sleef_expf8_u10"), in, out);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(out[i], std::exp(in[i]), 1e-6 * std::exp(in[i]));
}
#endif

}  // namespace
}  // namespace pinfer
