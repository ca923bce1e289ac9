// pinfer_moe on every instruction set of this machine: bit for bit what its experts give one by
// one, for any number of threads and any company of a row; choice of experts; checks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "csrc/kernels/kernels.h"
#include "csrc/kernels/quantized_weight.h"
#include "csrc/ops.h"
#include "csrc/threads/thread_pool.h"
#include "packing.h"

namespace pinfer {
namespace {

struct Format {
  std::string name;
  int32_t dtype;
  int64_t group_size;
};

const Format kFormats[] = {{"float32", PINFER_FLOAT32, 0},
                           {"bfloat16", PINFER_BFLOAT16, 0},
                           {"int8", PINFER_INT8, 0},
                           {"int4_32", PINFER_INT4, 32},
                           {"int4_128", PINFER_INT4, 128}};

// Random bytes with small positive scales: a packed weight of some numbers.
std::vector<uint8_t> random_blocks(int64_t num_blocks, int64_t block_bytes, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> packed(static_cast<size_t>(num_blocks * block_bytes));
  for (uint8_t& byte : packed) byte = static_cast<uint8_t>(generator());
  for (int64_t block = 0; block < num_blocks; ++block) {
    for (int64_t i = 0; i < kByteRow / 2; ++i) {
      const auto half = static_cast<uint16_t>(0x1800 + generator() % 0x400);  // near 1/400
      std::memcpy(&packed[static_cast<size_t>(block * block_bytes + 2 * i)], &half, 2);
    }
  }
  return packed;
}

std::vector<uint8_t> pack(const Format& format, int64_t n, int64_t k, unsigned seed) {
  const int64_t panels = (n + 15) / 16;
  switch (format.dtype) {
    case PINFER_FLOAT32:
      return pack_float32(random_floats(n * k, seed), n, k);
    case PINFER_BFLOAT16:
      return pack_bfloat16(random_floats(n * k, seed), n, k);
    case PINFER_INT8:
      return random_blocks(panels * Int8Layout::blocks(k), Int8Layout::kBlockBytes, seed);
    default:
      return random_blocks(panels * Int4Layout::blocks(k, format.group_size),
                           Int4Layout::block_bytes(format.group_size), seed);
  }
}

struct Shape {
  int64_t tokens, hidden, intermediate, experts, per_token;
};

struct Problem {
  Format format;
  Shape shape;
  bool normalize = true;
  int32_t activation = PINFER_SILU;
  std::vector<float> x, logits;
  std::vector<uint8_t> gate_up, down;  // of all experts

  Problem(const Format& format_in, const Shape& shape_in) : format(format_in), shape(shape_in) {
    x = random_floats(shape.tokens * shape.hidden, 1);
    logits = random_floats(shape.tokens * shape.experts, 2);
    for (int64_t e = 0; e < shape.experts; ++e) {
      const auto seed = static_cast<unsigned>(10 + 2 * e);
      const auto one_gate_up = pack(format, 2 * shape.intermediate, shape.hidden, seed);
      const auto one_down = pack(format, shape.hidden, shape.intermediate, seed + 1);
      gate_up.insert(gate_up.end(), one_gate_up.begin(), one_gate_up.end());
      down.insert(down.end(), one_down.begin(), one_down.end());
    }
  }

  // Tokens [begin, end).
  std::vector<float> run(int64_t begin, int64_t end) const {
    std::vector<float> out(static_cast<size_t>((end - begin) * shape.hidden), NAN);
    EXPECT_EQ(pinfer_moe(x.data() + begin * shape.hidden, logits.data() + begin * shape.experts,
                         gate_up.data(), down.data(), format.dtype, format.group_size, end - begin,
                         shape.hidden, shape.intermediate, shape.experts, shape.per_token,
                         normalize, activation, out.data()),
              0)
        << pinfer_ops_last_error();
    return out;
  }
  std::vector<float> run() const { return run(0, shape.tokens); }

  const uint8_t* of_expert(const std::vector<uint8_t>& weights, int64_t expert) const {
    return weights.data() + static_cast<int64_t>(weights.size()) / shape.experts * expert;
  }

  std::vector<float> multiply(const std::vector<float>& row, const uint8_t* weight,
                              int64_t n) const {
    std::vector<float> out(static_cast<size_t>(n));
    EXPECT_EQ(pinfer_linear(row.data(), 1, static_cast<int64_t>(row.size()), weight, format.dtype,
                            format.group_size, n, out.data()),
              0);
    return out;
  }

  // Token by token and expert by expert, through pinfer_linear.
  std::vector<float> one_by_one() const {
    const MoeKernel& kernel = *kernels().moe;
    std::vector<float> out;
    for (int64_t token = 0; token < shape.tokens; ++token) {
      std::vector<float> weights(static_cast<size_t>(shape.experts));
      kernel.softmax(logits.data() + token * shape.experts, shape.experts, weights.data());
      std::vector<size_t> order(weights.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return weights[a] > weights[b]; });
      order.resize(static_cast<size_t>(shape.per_token));
      float total = 0;
      for (size_t e : order) total += weights[e];
      std::sort(order.begin(), order.end());
      const std::vector<float> row(x.begin() + token * shape.hidden,
                                   x.begin() + (token + 1) * shape.hidden);
      std::vector<float> sum(row.size());
      for (size_t e : order) {
        const auto expert = static_cast<int64_t>(e);
        std::vector<float> gate = multiply(row, of_expert(gate_up, expert), 2 * shape.intermediate);
        kernel.gate[activation](gate.data(), gate.data() + shape.intermediate, shape.intermediate,
                                gate.data());
        gate.resize(static_cast<size_t>(shape.intermediate));
        const std::vector<float> result = multiply(gate, of_expert(down, expert), shape.hidden);
        kernel.accumulate(normalize ? weights[e] / total : weights[e], result.data(), shape.hidden,
                          sum.data());
      }
      out.insert(out.end(), sum.begin(), sum.end());
    }
    return out;
  }
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b,
                      const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

class MoeTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (pinfer_force_isa(GetParam()) != 0) GTEST_SKIP() << pinfer_ops_last_error();
  }
  void TearDown() override { pinfer_force_isa(""); }
};

TEST_P(MoeTest, SameBitsAsExpertsOneByOne) {
  // Remainders of panels, of steps of k, of vectors; one expert, all experts, most without tokens.
  const Shape shapes[] = {{1, 1, 1, 1, 1},   {1, 40, 24, 8, 2},  {3, 33, 17, 5, 5},
                          {7, 64, 48, 3, 2}, {5, 129, 7, 40, 8}, {30, 70, 35, 4, 2}};
  for (const Format& format : kFormats) {
    for (const Shape& shape : shapes) {
      Problem p(format, shape);
      for (int32_t activation : {PINFER_SILU, PINFER_GELU, PINFER_GELU_TANH}) {
        p.activation = activation;
        p.normalize = activation != PINFER_GELU;
        const std::vector<float> out = p.run();
        for (float value : out) ASSERT_TRUE(std::isfinite(value));
        expect_same_bits(out, p.one_by_one(),
                         format.name + ", hidden " + std::to_string(shape.hidden) +
                             ", activation " + std::to_string(activation));
      }
    }
  }
}

TEST_P(MoeTest, RowsAloneAndTogetherForAnyNumberOfThreads) {
  for (const Format& format : kFormats) {
    const Problem p(format, {130, 97, 51, 6, 3});
    std::vector<float> alone;
    for (int64_t token = 0; token < p.shape.tokens; ++token) {
      const std::vector<float> row = p.run(token, token + 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (int threads : {1, 2, 3, 4}) {
      ThreadPool pool(threads);
      ThreadPool::Scope scope(&pool);
      const std::string what = format.name + ", threads " + std::to_string(threads);
      expect_same_bits(alone, p.run(), what);
      const std::vector<float> part = p.run(11, 48);
      expect_same_bits({alone.begin() + 11 * 97, alone.begin() + 48 * 97}, part, what);
      expect_same_bits({alone.begin(), alone.begin() + 97}, p.run(0, 1), what);
    }
  }
}

// More rows than are held at a time, so that experts are cut and tokens come back.
TEST_P(MoeTest, PortionsOfRowsDoNotMatter) {
  for (const Format& format : kFormats) {
    const Problem p(format, {3000, 18, 5, 3, 3});
    ThreadPool pool(3);
    ThreadPool::Scope scope(&pool);
    const std::vector<float> whole = p.run();
    for (int64_t begin : {0, 1400, 2990}) {
      const std::vector<float> part = p.run(begin, begin + 10);
      expect_same_bits({whole.begin() + begin * 18, whole.begin() + (begin + 10) * 18}, part,
                       format.name + " from " + std::to_string(begin));
    }
  }
}

// Every expert gives its number: the output says which were chosen, and how they were weighed.
class Choice {
 public:
  explicit Choice(int64_t experts) : experts_(experts) {
    for (int64_t e = 0; e < experts; ++e) {
      const auto gate_up = pack_float32({1, 1}, 2, 1);
      const auto down = pack_float32({std::pow(10.0f, static_cast<float>(e))}, 1, 1);
      gate_up_.insert(gate_up_.end(), gate_up.begin(), gate_up.end());
      down_.insert(down_.end(), down.begin(), down.end());
    }
  }

  // In units of one expert's output with weight 1.
  double run(const std::vector<float>& logits, int64_t per_token, bool normalize) const {
    const float x = 1;
    float out = 0;
    EXPECT_EQ(pinfer_moe(&x, logits.data(), gate_up_.data(), down_.data(), PINFER_FLOAT32, 0, 1, 1,
                         1, experts_, per_token, normalize, PINFER_SILU, &out),
              0)
        << pinfer_ops_last_error();
    return out * (1 + std::exp(-1.0));
  }

 private:
  int64_t experts_;
  std::vector<uint8_t> gate_up_, down_;
};

TEST_P(MoeTest, MostProbableExpertsWithTheirWeights) {
  const Choice choice(4);
  const std::vector<float> logits = {std::log(0.2f), std::log(0.1f), std::log(0.4f),
                                     std::log(0.3f)};
  EXPECT_NEAR(choice.run(logits, 2, false), 0.4 * 100 + 0.3 * 1000, 1e-3);
  EXPECT_NEAR(choice.run(logits, 2, true), (0.4 * 100 + 0.3 * 1000) / 0.7, 1e-3);
  EXPECT_NEAR(choice.run(logits, 1, true), 100, 1e-3);
}

TEST_P(MoeTest, OfEqualExpertsTheLowerOnesAreChosen) {
  const Choice choice(5);
  EXPECT_NEAR(choice.run({1, 1, 1, 1, 1}, 2, true), (1 + 10) / 2.0, 1e-5);
  EXPECT_NEAR(choice.run({0, 1, 2, 1, 1}, 2, false),
              (100 * std::exp(2) + 10 * std::exp(1)) / (1 + 3 * std::exp(1) + std::exp(2)), 1e-4);
}

TEST_P(MoeTest, NonFiniteLogitsMakeTheirRowsNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Format& format : kFormats) {
    Problem p(format, {6, 20, 12, 9, 3});
    const std::vector<float> clean = p.run();
    p.logits[1 * 9 + 8] = NAN;
    for (int64_t e = 0; e < 9; ++e) p.logits[static_cast<size_t>(3 * 9 + e)] = NAN;
    p.logits[4 * 9] = kInfinity;
    for (int64_t e = 0; e < 9; ++e) p.logits[static_cast<size_t>(5 * 9 + e)] = -kInfinity;
    const std::vector<float> out = p.run();
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t token = i / 20;
      if (token == 0 || token == 2) {
        EXPECT_EQ(out[i], clean[i]) << format.name << " token " << token;
      } else {
        EXPECT_TRUE(std::isnan(out[i])) << format.name << " token " << token;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, MoeTest,
                         testing::Values("portable", "avx2", "avx2_vnni", "avx512", "avx512_vnni",
                                         "avx512_bf16"),
                         [](const auto& info) { return std::string(info.param); });

void expect_error(int32_t code, const std::string& part) {
  EXPECT_EQ(code, PINFER_OPS_INVALID_ARGUMENT);
  EXPECT_NE(std::string(pinfer_ops_last_error()).find(part), std::string::npos)
      << pinfer_ops_last_error();
}

TEST(MoeChecksTest, Arguments) {
  const std::vector<float> memory(1024);
  float out[4] = {7, 7, 7, 7};
  struct Sizes {
    int64_t tokens = 1, hidden = 4, intermediate = 2, experts = 3, per_token = 2, group_size = 0;
    int32_t dtype = PINFER_FLOAT32, activation = PINFER_SILU;
    bool is_null = false;
  };
  const auto run = [&](const Sizes& s) {
    return pinfer_moe(s.is_null ? nullptr : memory.data(), memory.data(), memory.data(),
                      memory.data(), s.dtype, s.group_size, s.tokens, s.hidden, s.intermediate,
                      s.experts, s.per_token, 1, s.activation, out);
  };
  expect_error(run({.tokens = -1}), "moe: num_tokens must be at least 0, got -1");
  expect_error(run({.hidden = 0}), "hidden_size and intermediate_size must be at least 1, got 0");
  expect_error(run({.intermediate = 0}), "must be at least 1, got 4 and 0");
  expect_error(run({.experts = 0}), "num_experts must be at least 1, got 0");
  expect_error(run({.per_token = 0}), "experts_per_token must be 1 to num_experts (3), got 0");
  expect_error(run({.per_token = 4}), "experts_per_token must be 1 to num_experts (3), got 4");
  expect_error(run({.activation = 3}), "activation must be silu (0), gelu (1) or gelu_tanh (2)");
  expect_error(run({.activation = -1}), "got -1");
  expect_error(run({.dtype = 5}), "moe: weight dtype must be float32 (6), bfloat16 (15)");
  expect_error(run({.group_size = 33, .dtype = PINFER_INT4}), "moe: group_size of an int4 weight");
  expect_error(run({.is_null = true}),
               "moe: x, router_logits, gate_up_weight, down_weight and out");
  for (float value : out) EXPECT_EQ(value, 7) << "nothing is written on an error";
  EXPECT_EQ(run({.tokens = 0, .is_null = true}), 0);
}

}  // namespace
}  // namespace pinfer
