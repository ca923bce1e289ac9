// pinfer_embedding: rows of a packed table.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "csrc/kernels/kernels.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/threads/thread_pool.h"

namespace pinfer {

namespace {

constexpr int64_t kSerialElements = 32 * 1024;

void gather_float32(const float* weight, int64_t id, int64_t hidden_size, float* out) {
  const float* column = weight + id / kPanelWidth * hidden_size * kPanelWidth + id % kPanelWidth;
  for (int64_t i = 0; i < hidden_size; ++i) out[i] = column[i * kPanelWidth];
}

void gather_bfloat16(const uint16_t* weight, int64_t id, int64_t hidden_size, float* out) {
  const int64_t num_pairs = (hidden_size + 1) / 2;
  const uint16_t* column =
      weight + (id / kPanelWidth * num_pairs * kPanelWidth + id % kPanelWidth) * 2;
  for (int64_t i = 0; i < hidden_size; ++i) {
    const uint32_t bits = static_cast<uint32_t>(column[i / 2 * kPanelWidth * 2 + i % 2]) << 16;
    std::memcpy(&out[i], &bits, sizeof(bits));
  }
}

int32_t embedding(const int32_t* token_ids, int64_t num_tokens, const void* weight,
                  int32_t weight_dtype, int64_t vocab_size, int64_t hidden_size, float* out) {
  PINFER_OPS_CHECK(num_tokens >= 0, "embedding: num_tokens must be at least 0, got %lld",
                   static_cast<long long>(num_tokens));
  PINFER_OPS_CHECK(vocab_size >= 1 && hidden_size >= 1,
                   "embedding: vocab_size and hidden_size must be at least 1, got %lld and %lld",
                   static_cast<long long>(vocab_size), static_cast<long long>(hidden_size));
  PINFER_OPS_CHECK(weight_dtype == PINFER_FLOAT32 || weight_dtype == PINFER_BFLOAT16,
                   "embedding: weight dtype must be float32 (6) or bfloat16 (15), got %d",
                   weight_dtype);
  if (num_tokens == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(token_ids != nullptr && weight != nullptr && out != nullptr,
                   "embedding: token_ids, weight and out must not be null");
  for (int64_t i = 0; i < num_tokens; ++i) {
    PINFER_OPS_CHECK(token_ids[i] >= 0 && token_ids[i] < vocab_size,
                     "embedding: token_ids[%lld] must be in [0, %lld), got %d",
                     static_cast<long long>(i), static_cast<long long>(vocab_size), token_ids[i]);
  }
  const int64_t grain = std::max<int64_t>(1, kSerialElements / hidden_size);
  parallel_for(num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (weight_dtype == PINFER_FLOAT32) {
        gather_float32(static_cast<const float*>(weight), token_ids[i], hidden_size,
                       out + i * hidden_size);
      } else {
        gather_bfloat16(static_cast<const uint16_t*>(weight), token_ids[i], hidden_size,
                        out + i * hidden_size);
      }
    }
  });
  return PINFER_OPS_OK;
}

}  // namespace

}  // namespace pinfer

int32_t pinfer_embedding(const int32_t* token_ids, int64_t num_tokens, const void* weight,
                         int32_t weight_dtype, int64_t vocab_size, int64_t hidden_size,
                         float* out) {
  return pinfer::run_op("embedding", [&] {
    return pinfer::embedding(token_ids, num_tokens, weight, weight_dtype, vocab_size, hidden_size,
                             out);
  });
}
