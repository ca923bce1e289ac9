// Rotary embedding fused with the cache write, against the formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/kernels/kernels_cuda.h"
#include "cuda_emulation.h"
#include "device_tensor.h"
#include "device_weight.h"

namespace pinfer::cuda {
namespace {

struct RotaryCase {
  int32_t dtype, cache_dtype;
  int64_t num_heads, num_kv_heads, head_dim, rotary_dim, block_size;
  float k_scale = 1, v_scale = 1;
  bool writes_q = true;
};

class Rotary {
 public:
  static constexpr int64_t kTokens = 5, kBlocks = 4;

  explicit Rotary(const RotaryCase& c) : c_(c) {
    // As a fused projection leaves them: q, k and v of a token side by side.
    stride_ = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim;
    qkv_ = DeviceTensor(random_numbers(kTokens * stride_, 1), c.dtype);
    for (int64_t i = 0; i < kTokens * c.rotary_dim / 2; ++i) {
      const double angle = 0.37 * static_cast<double>(i);
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
    slots_ = {c.block_size * 3 + 1, -1, 0, c.block_size * 2 - 1, c.block_size};
    q_out_ = DeviceTensor(kTokens * c.num_heads * c.head_dim, c.dtype);
    const int64_t size = kBlocks * c.num_kv_heads * c.block_size * padded_head_dim(c.head_dim);
    k_cache_ = DeviceTensor(size, c.cache_dtype);
    v_cache_ = DeviceTensor(size, c.cache_dtype);
  }

  RotaryCacheTask task() {
    const auto part = [&](int64_t heads) {
      return static_cast<char*>(qkv_.data()) +
             static_cast<size_t>(heads * c_.head_dim) * dtype_bytes(c_.dtype);
    };
    RotaryCacheTask task;
    task.q = part(0);
    task.k = part(c_.num_heads);
    task.v = part(c_.num_heads + c_.num_kv_heads);
    task.q_stride = task.k_stride = task.v_stride = stride_;
    task.dtype = c_.dtype;
    task.cos = cos_.data();
    task.sin = sin_.data();
    task.rotary_dim = c_.rotary_dim;
    task.q_out = c_.writes_q ? q_out_.data() : nullptr;
    task.slot_mapping = slots_.data();
    task.cache = {k_cache_.data(), v_cache_.data(), c_.cache_dtype, kBlocks,   c_.block_size,
                  c_.num_kv_heads, c_.head_dim,     c_.k_scale,     c_.v_scale};
    task.num_tokens = kTokens;
    task.num_heads = c_.num_heads;
    return task;
  }

  void check() const {
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < c_.num_heads; ++h) {
        for (int64_t d = 0; d < c_.head_dim; ++d) {
          const float out = q_out_[(t * c_.num_heads + h) * c_.head_dim + d];
          if (c_.writes_q) {
            expect(out, rotated(t, h, d), c_.dtype);
          } else {
            EXPECT_TRUE(std::isnan(out));
          }
        }
      }
    }
    // Every number of the cache: what the slots say, and nothing else.
    const int64_t padded = padded_head_dim(c_.head_dim);
    for (int64_t i = 0; i < k_cache_.count(); ++i) {
      const int64_t d = i % padded, offset = i / padded % c_.block_size;
      const int64_t h = i / padded / c_.block_size % c_.num_kv_heads;
      const int64_t block = i / padded / c_.block_size / c_.num_kv_heads;
      int64_t token = -1;
      for (int64_t t = 0; t < kTokens; ++t) {
        if (slots_[static_cast<size_t>(t)] == block * c_.block_size + offset) token = t;
      }
      if (token < 0) {
        ASSERT_TRUE(std::isnan(k_cache_[i]) && std::isnan(v_cache_[i])) << i;
      } else if (d >= c_.head_dim) {
        ASSERT_TRUE(k_cache_[i] == 0 && v_cache_[i] == 0) << i;
      } else {
        const int64_t v_head = c_.num_heads + c_.num_kv_heads + h;
        expect(k_cache_[i], rotated(token, c_.num_heads + h, d) / c_.k_scale, c_.cache_dtype);
        expect(v_cache_[i], number(token, v_head, d) / c_.v_scale, c_.cache_dtype);
      }
    }
  }

 private:
  double number(int64_t token, int64_t head, int64_t d) const {
    return qkv_[token * stride_ + head * c_.head_dim + d];
  }
  double rotated(int64_t token, int64_t head, int64_t d) const {
    const int64_t half = c_.rotary_dim / 2;
    if (d >= c_.rotary_dim) return number(token, head, d);
    const auto at = static_cast<size_t>(token * half + d % half);
    const double partner = number(token, head, d < half ? d + half : d - half);
    return number(token, head, d) * cos_[at] + (d < half ? -partner : partner) * sin_[at];
  }
  static void expect(float value, double expected, int32_t dtype) {
    const double relative = dtype == PINFER_FLOAT32    ? 1e-6
                            : dtype == PINFER_BFLOAT16 ? 1.0 / 256
                            : dtype == PINFER_FLOAT16  ? 1.0 / 2048
                                                       : 1.0 / 16;
    const double least = dtype == PINFER_FLOAT8_E4M3 ? 1.0 / 1024 : 1e-6;
    EXPECT_NEAR(value, expected, relative * std::fabs(expected) + least) << dtype_name(dtype);
  }

  RotaryCase c_;
  int64_t stride_;
  DeviceTensor qkv_, q_out_, k_cache_, v_cache_;
  std::vector<float> cos_, sin_;
  std::vector<int64_t> slots_;
};

TEST(RotaryCuda, AllDtypesAndOddHeads) {
  for (const int32_t dtype : {PINFER_FLOAT32, PINFER_BFLOAT16, PINFER_FLOAT16}) {
    for (const int32_t cache :
         {PINFER_FLOAT32, PINFER_BFLOAT16, PINFER_FLOAT16, PINFER_FLOAT8_E4M3}) {
      for (const RotaryCase& c :
           {RotaryCase{dtype, cache, 4, 2, 64, 64, 16}, RotaryCase{dtype, cache, 3, 1, 80, 32, 48},
            RotaryCase{dtype, cache, 1, 1, 65, 0, 16, 0.5f, 2},
            RotaryCase{dtype, cache, 2, 2, 7, 2, 16, 2, 0.25f, false}}) {
        Rotary rotary(c);
        ASSERT_EQ(write_rotary_cache(rotary.task(), nullptr), 0) << pinfer_ops_last_error();
        rotary.check();
      }
    }
  }
}

TEST(RotaryCuda, RefusesWhatItCannotDo) {
  Rotary rotary({PINFER_FLOAT32, PINFER_BFLOAT16, 2, 1, 64, 64, 16});
  RotaryCacheTask task = rotary.task();
  task.rotary_dim = 66;
  EXPECT_EQ(write_rotary_cache(task, nullptr), PINFER_OPS_INVALID_ARGUMENT);
  EXPECT_STREQ(pinfer_ops_last_error(),
               "write_rotary_cache: rotary_dim must be even and 0 to head_dim 64, got 66");
  task = rotary.task();
  task.k_stride = 63;
  EXPECT_EQ(write_rotary_cache(task, nullptr), PINFER_OPS_INVALID_ARGUMENT);
  task = rotary.task();
  task.cache.dtype = PINFER_INT8;
  EXPECT_EQ(write_rotary_cache(task, nullptr), PINFER_OPS_INVALID_ARGUMENT);
  task = rotary.task();
  task.num_tokens = 0;
  EXPECT_EQ(write_rotary_cache(task, nullptr), 0);
}

}  // namespace
}  // namespace pinfer::cuda
