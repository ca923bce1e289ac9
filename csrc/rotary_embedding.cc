// pinfer_rotary_embedding: the angles' cosines and sines, once per step for all layers.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/threads/thread_pool.h"

namespace pinfer {

namespace {

constexpr int64_t kSerialAngles = 1024;

int32_t rotary_embedding(const int32_t* positions, int64_t num_tokens, const float* inv_freq,
                         int64_t num_freqs, double attention_scaling, float* cos, float* sin) {
  PINFER_OPS_CHECK(num_tokens >= 0, "rotary_embedding: num_tokens must be at least 0, got %lld",
                   static_cast<long long>(num_tokens));
  PINFER_OPS_CHECK(num_freqs >= 1, "rotary_embedding: num_freqs must be at least 1, got %lld",
                   static_cast<long long>(num_freqs));
  if (num_tokens == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(positions != nullptr && inv_freq != nullptr && cos != nullptr && sin != nullptr,
                   "rotary_embedding: positions, inv_freq, cos and sin must not be null");
  const float scaling = static_cast<float>(attention_scaling);
  const int64_t grain = std::max<int64_t>(1, kSerialAngles / num_freqs);
  parallel_for(num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < num_freqs; ++i) {
        const float angle = static_cast<float>(positions[t]) * inv_freq[i];
        cos[t * num_freqs + i] = std::cos(angle) * scaling;
        sin[t * num_freqs + i] = std::sin(angle) * scaling;
      }
    }
  });
  return PINFER_OPS_OK;
}

}  // namespace

}  // namespace pinfer

int32_t pinfer_rotary_embedding(const int32_t* positions, int64_t num_tokens, const float* inv_freq,
                                int64_t num_freqs, double attention_scaling, float* cos,
                                float* sin) {
  return pinfer::run_op("rotary_embedding", [&] {
    return pinfer::rotary_embedding(positions, num_tokens, inv_freq, num_freqs, attention_scaling,
                                    cos, sin);
  });
}
