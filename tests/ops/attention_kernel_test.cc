// The attention kernels of every instruction set against a plain softmax in double, and bit for bit
// under every division into rows and partitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernel_sets.h"
#include "packing.h"

namespace pinfer {
namespace {

enum class CacheDtype { FLOAT32, BFLOAT16, INT8 };
constexpr CacheDtype kDtypes[] = {CacheDtype::FLOAT32, CacheDtype::BFLOAT16, CacheDtype::INT8};

int64_t token_bytes(CacheDtype dtype, int64_t head_dim) {
  if (dtype == CacheDtype::INT8) return int8_token_bytes(head_dim);
  return head_dim * (dtype == CacheDtype::BFLOAT16 ? 2 : 4);
}

// What a cache keeps of rows [count, head_dim].
void round_rows(CacheDtype dtype, int64_t head_dim, std::vector<float>* values) {
  if (dtype == CacheDtype::BFLOAT16) {
    for (float& value : *values) value = from_bfloat16(to_bfloat16(value));
  } else if (dtype == CacheDtype::INT8) {
    for (auto row = values->begin(); row != values->end(); row += head_dim) {
      float largest = 0;
      for (auto x = row; x != row + head_dim; ++x) largest = std::max(largest, std::fabs(*x));
      for (auto x = row; x != row + head_dim; ++x) {
        *x = largest / 127.0f * std::nearbyintf(*x * (127.0f / largest));
      }
    }
  }
}

// One kv head's context in a cache whose every other byte is NaN.
struct Context {
  int64_t length, head_dim, block_size;
  CacheDtype dtype;
  std::vector<float> k, v;  // [length, head_dim], as the cache keeps them
  std::vector<int32_t> block_table;
  std::vector<uint8_t> k_cache, v_cache;

  Context(const AttentionKernel& kernel, int64_t length_in, int64_t head_dim_in,
          int64_t block_size_in, CacheDtype dtype_in)
      : length(length_in), head_dim(head_dim_in), block_size(block_size_in), dtype(dtype_in) {
    k = random_floats(length * head_dim, 3);
    v = random_floats(length * head_dim, 4);
    const int64_t num_blocks = (length + block_size - 1) / block_size;
    // Blocks in descending order, each followed by one that is not ours.
    for (int64_t i = num_blocks; i-- > 0;) block_table.push_back(static_cast<int32_t>(2 * i));
    const int64_t block_bytes = block_size * token_bytes(dtype, head_dim);
    k_cache.assign(static_cast<size_t>(2 * num_blocks * block_bytes), 0xff);  // NaN, as scales too
    v_cache = k_cache;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t block = block_table[static_cast<size_t>(i / block_size)];
      kernel.write(k.data() + i * head_dim, v.data() + i * head_dim, head_dim, i % block_size,
                   k_cache.data() + block * block_bytes, v_cache.data() + block * block_bytes);
    }
    round_rows(dtype, head_dim, &k);
    round_rows(dtype, head_dim, &v);
  }
};

struct Row {
  int64_t begin, end;
};

constexpr float kScale = 0.3f;

AttentionTask make_task(const Context& context, const std::vector<float>& q,
                        const std::vector<Row>& rows, size_t first, size_t count, float softcap) {
  AttentionTask task;
  task.k_cache = context.k_cache.data();
  task.v_cache = context.v_cache.data();
  task.block_table = context.block_table.data();
  task.block_size = context.block_size;
  task.num_kv_heads = 1;
  task.kv_head = 0;
  task.head_dim = context.head_dim;
  task.scale = kScale;
  task.logit_softcap = softcap;
  task.num_rows = static_cast<int>(count);
  for (size_t i = 0; i < count; ++i) {
    task.q[i] = q.data() + (first + i) * static_cast<size_t>(context.head_dim);
    task.begin[i] = rows[first + i].begin;
    task.end[i] = rows[first + i].end;
  }
  return task;
}

// All rows, `step` at a time; partitions one by one and merged, or all in one call.
std::vector<float> attend(const AttentionKernel& kernel, const Context& context,
                          const std::vector<float>& q, const std::vector<Row>& rows, size_t step,
                          bool by_partition, float softcap = 0) {
  const int64_t d = context.head_dim, state_size = attention_state_size(d);
  const int64_t num_partitions = (context.length + kPartitionSize - 1) / kPartitionSize;
  std::vector<float> out(rows.size() * static_cast<size_t>(d));
  for (size_t first = 0; first < rows.size(); first += step) {
    const size_t count = std::min(step, rows.size() - first);
    const AttentionTask task = make_task(context, q, rows, first, count, softcap);
    const size_t size = count * static_cast<size_t>(state_size);
    std::vector<float> states(size);
    if (by_partition) {
      kernel.attend(task, 0, 1, states.data());
      std::vector<float> later(size);
      for (int64_t p = 1; p < num_partitions; ++p) {
        kernel.attend(task, p, p + 1, later.data());
        for (size_t i = 0; i < count; ++i) {
          kernel.merge(&later[i * static_cast<size_t>(state_size)], d,
                       &states[i * static_cast<size_t>(state_size)]);
        }
      }
    } else {
      kernel.attend(task, 0, num_partitions, states.data());
    }
    for (size_t i = 0; i < count; ++i) {
      kernel.finish(&states[i * static_cast<size_t>(state_size)], d,
                    &out[(first + i) * static_cast<size_t>(d)]);
    }
  }
  return out;
}

void expect_close(const Context& context, const std::vector<float>& q, const std::vector<Row>& rows,
                  const std::vector<float>& out, double softcap = 0) {
  const int64_t d = context.head_dim;
  for (size_t row = 0; row < rows.size(); ++row) {
    std::vector<double> weights;
    double sum = 0;
    for (int64_t j = rows[row].begin; j < rows[row].end; ++j) {
      double score = 0;
      for (int64_t i = 0; i < d; ++i) {
        const float value = q[row * static_cast<size_t>(d) + static_cast<size_t>(i)];
        const bool is_bfloat16 = context.dtype == CacheDtype::BFLOAT16;
        const double x = is_bfloat16 ? from_bfloat16(to_bfloat16(value)) : value;
        score += x * context.k[static_cast<size_t>(j * d + i)];
      }
      score *= static_cast<double>(kScale);
      if (softcap != 0) score = softcap * std::tanh(score / softcap);
      weights.push_back(std::exp(score));
      sum += weights.back();
    }
    for (int64_t i = 0; i < d; ++i) {
      double expected = 0;
      for (int64_t j = rows[row].begin; j < rows[row].end; ++j) {
        expected += weights[static_cast<size_t>(j - rows[row].begin)] / sum *
                    context.v[static_cast<size_t>(j * d + i)];
      }
      ASSERT_NEAR(out[row * static_cast<size_t>(d) + static_cast<size_t>(i)], expected, 5e-6)
          << "row " << row << " dimension " << i << " of " << d;
    }
  }
}

std::vector<Row> causal_rows(int64_t length, int64_t count, int64_t group, int64_t window) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < count * group; ++i) {
    const int64_t end = length - count + 1 + i / group;
    rows.push_back({window > 0 ? std::max<int64_t>(0, end - window) : 0, end});
  }
  return rows;
}

class AttentionKernelTest : public testing::TestWithParam<KernelSet> {
 protected:
  const AttentionKernel& kernel(CacheDtype dtype) const {
    switch (dtype) {
      case CacheDtype::FLOAT32:
        return *GetParam().attention_float32;
      case CacheDtype::BFLOAT16:
        return *GetParam().attention_bfloat16;
      case CacheDtype::INT8:
        break;
    }
    return *GetParam().attention_int8;
  }
};

TEST_P(AttentionKernelTest, AgreesWithSoftmaxInDouble) {
  for (CacheDtype dtype : kDtypes) {
    for (int64_t head_dim : {2, 7, 8, 24, 64, 80, 100, 256}) {
      if (dtype == CacheDtype::BFLOAT16 && head_dim % 2 != 0) continue;
      for (int64_t length : {1, 15, 16, 17, 300}) {
        const Context context(kernel(dtype), length, head_dim, 16, dtype);
        const auto rows = causal_rows(length, std::min<int64_t>(length, 7), 3, 0);
        const auto q = random_floats(static_cast<int64_t>(rows.size()) * head_dim, 5);
        expect_close(context, q, rows,
                     attend(kernel(dtype), context, q, rows, kMaxAttentionRows, false));
      }
    }
  }
}

TEST_P(AttentionKernelTest, LargerBlocks) {
  for (CacheDtype dtype : kDtypes) {
    for (int64_t block_size : {32, 48, 256}) {
      const Context context(kernel(dtype), 290, 64, block_size, dtype);
      const auto rows = causal_rows(290, 5, 2, 0);
      const auto q = random_floats(static_cast<int64_t>(rows.size()) * 64, 5);
      expect_close(context, q, rows, attend(kernel(dtype), context, q, rows, 24, false));
    }
  }
}

TEST_P(AttentionKernelTest, SlidingWindowAndSoftcap) {
  for (CacheDtype dtype : kDtypes) {
    const Context context(kernel(dtype), 530, 40, 16, dtype);
    for (int64_t window : {1, 5, 20, 300, 1000}) {
      const auto rows = causal_rows(530, 20, 1, window);
      const auto q = random_floats(static_cast<int64_t>(rows.size()) * 40, 6);
      for (float softcap : {0.0f, 2.0f}) {
        expect_close(context, q, rows, attend(kernel(dtype), context, q, rows, 24, false, softcap),
                     softcap);
      }
    }
  }
}

TEST_P(AttentionKernelTest, AnyDivisionGivesTheSameBits) {
  for (CacheDtype dtype : kDtypes) {
    for (int64_t head_dim : {64, 20}) {
      for (int64_t window : {0, 33, 280}) {
        const Context context(kernel(dtype), 600, head_dim, 16, dtype);
        const auto rows = causal_rows(600, 31, 3, window);
        const auto q = random_floats(static_cast<int64_t>(rows.size()) * head_dim, 7);
        const auto alone = attend(kernel(dtype), context, q, rows, 1, false);
        for (size_t step : {1, 2, 5, 6, 7, 13, 24}) {
          for (bool by_partition : {false, true}) {
            const auto out = attend(kernel(dtype), context, q, rows, step, by_partition);
            ASSERT_EQ(std::memcmp(alone.data(), out.data(), alone.size() * 4), 0)
                << "rows " << step << " by partition " << by_partition << " head_dim " << head_dim
                << " window " << window;
          }
        }
      }
    }
  }
}

TEST_P(AttentionKernelTest, NonFiniteKeysSpoilOnlyRowsThatSeeThem) {
  for (CacheDtype dtype : kDtypes) {
    Context context(kernel(dtype), 40, 32, 16, dtype);
    const auto rows = causal_rows(40, 10, 2, 0);  // ends 31 ... 40
    const auto q = random_floats(static_cast<int64_t>(rows.size()) * 32, 8);
    const auto clean = attend(kernel(dtype), context, q, rows, 24, false);
    std::vector<float> bad(32, NAN);
    const int64_t position = 35;
    const int64_t block_bytes = 16 * token_bytes(dtype, 32);
    const int64_t block = context.block_table[position / 16];
    kernel(dtype).write(bad.data(), bad.data(), 32, position % 16,
                        context.k_cache.data() + block * block_bytes,
                        context.v_cache.data() + block * block_bytes);
    const auto out = attend(kernel(dtype), context, q, rows, 24, false);
    for (size_t i = 0; i < out.size(); ++i) {
      if (rows[i / 32].end > position) {
        EXPECT_TRUE(std::isnan(out[i]));
      } else {
        EXPECT_EQ(out[i], clean[i]);
      }
    }
  }
}

std::string set_name(const testing::TestParamInfo<KernelSet>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Sets, AttentionKernelTest, testing::ValuesIn(available_kernel_sets()),
                         set_name);

}  // namespace
}  // namespace pinfer
