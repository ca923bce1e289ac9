// pinfer_embedding: rows of a packed table.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "csrc/kernels/quantized_weight.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/packed_weight.h"
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

float from_float16(uint16_t x) {
  const uint32_t magnitude = static_cast<uint32_t>(x & 0x7fff) << 13;
  float value;
  std::memcpy(&value, &magnitude, sizeof(value));
  value *= 0x1p112f;
  return (x & 0x8000) != 0 ? -value : value;
}

void gather_int8(const char* weight, int64_t id, int64_t hidden_size, float* out) {
  const char* panel = weight + id / kPanelWidth * Int8Layout::panel_bytes(hidden_size);
  const int64_t lane = id % kPanelWidth;
  for (int64_t i = 0; i < hidden_size; ++i) {
    const char* block = panel + i / Int8Layout::kBlockSize * Int8Layout::kBlockBytes;
    const int64_t place = i % Int8Layout::kBlockSize;
    uint16_t scale;
    std::memcpy(&scale, block + (place / kQuantizedGroup * kPanelWidth + lane) * 2, sizeof(scale));
    const auto number =
        static_cast<int8_t>(block[kByteRow + place / 4 * kByteRow + lane * 4 + place % 4]);
    out[i] = from_float16(scale) * static_cast<float>(number);
  }
}

void gather_int4(const char* weight, int64_t group_size, int64_t id, int64_t hidden_size,
                 float* out) {
  const int64_t lane = id % kPanelWidth;
  const char* group = weight + id / kPanelWidth * Int4Layout::panel_bytes(hidden_size, group_size);
  for (int64_t begin = 0; begin < hidden_size; begin += group_size) {
    uint16_t scale, minimum;
    std::memcpy(&scale, group + lane * 2, sizeof(scale));
    std::memcpy(&minimum, group + (kPanelWidth + lane) * 2, sizeof(minimum));
    const auto* bytes = reinterpret_cast<const uint8_t*>(group) + kByteRow + lane * 4;
    const int64_t end = std::min(begin + group_size, hidden_size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = i - begin;
      const uint8_t pair = bytes[place / 8 * kByteRow + place % 4];
      const int nibble = place % 8 < 4 ? pair & 15 : pair >> 4;
      out[i] = from_float16(scale) * static_cast<float>(nibble) + from_float16(minimum);
    }
    group += Int4Layout::block_bytes(group_size);
  }
}

void gather(const PackedWeight& weight, int64_t id, int64_t hidden_size, float* out) {
  switch (weight.dtype) {
    case PINFER_FLOAT32:
      return gather_float32(static_cast<const float*>(weight.data), id, hidden_size, out);
    case PINFER_BFLOAT16:
      return gather_bfloat16(static_cast<const uint16_t*>(weight.data), id, hidden_size, out);
    case PINFER_INT8:
      return gather_int8(static_cast<const char*>(weight.data), id, hidden_size, out);
    default:
      return gather_int4(static_cast<const char*>(weight.data), weight.group_size, id, hidden_size,
                         out);
  }
}

int32_t embedding(const int32_t* token_ids, int64_t num_tokens, const PackedWeight& weight,
                  int64_t vocab_size, int64_t hidden_size, float* out) {
  PINFER_OPS_CHECK(num_tokens >= 0, "embedding: num_tokens must be at least 0, got %lld",
                   static_cast<long long>(num_tokens));
  PINFER_OPS_CHECK(vocab_size >= 1 && hidden_size >= 1,
                   "embedding: vocab_size and hidden_size must be at least 1, got %lld and %lld",
                   static_cast<long long>(vocab_size), static_cast<long long>(hidden_size));
  if (const int32_t error = check_weight_format("embedding", weight)) return error;
  if (num_tokens == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(token_ids != nullptr && weight.data != nullptr && out != nullptr,
                   "embedding: token_ids, weight and out must not be null");
  for (int64_t i = 0; i < num_tokens; ++i) {
    PINFER_OPS_CHECK(token_ids[i] >= 0 && token_ids[i] < vocab_size,
                     "embedding: token_ids[%lld] must be in [0, %lld), got %d",
                     static_cast<long long>(i), static_cast<long long>(vocab_size), token_ids[i]);
  }
  const int64_t grain = std::max<int64_t>(1, kSerialElements / hidden_size);
  parallel_for(num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      gather(weight, token_ids[i], hidden_size, out + i * hidden_size);
    }
  });
  return PINFER_OPS_OK;
}

}  // namespace

}  // namespace pinfer

int32_t pinfer_embedding(const int32_t* token_ids, int64_t num_tokens, const void* weight,
                         int32_t weight_dtype, int64_t group_size, int64_t vocab_size,
                         int64_t hidden_size, float* out) {
  return pinfer::run_op("embedding", [&] {
    return pinfer::embedding(token_ids, num_tokens, {weight, weight_dtype, group_size}, vocab_size,
                             hidden_size, out);
  });
}
