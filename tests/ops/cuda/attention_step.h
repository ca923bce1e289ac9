// A step of paged attention for tests: random q, a cache that is NaN but for the requests' tokens,
// block tables in disorder, and the result in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "csrc/kernels/kernels_cuda.h"
#include "device_tensor.h"
#include "device_weight.h"

namespace pinfer::cuda {

struct AttentionCase {
  int32_t cache_dtype, dtype;
  int64_t head_dim, num_heads, num_kv_heads, block_size;
  std::vector<std::pair<int, int>> requests;  // rows, context length
  int32_t sliding_window = 0;
  float logit_softcap = 0;
  float k_scale = 1, v_scale = 1;

  int max_rows() const {
    int rows = 0;
    for (const auto& request : requests) rows = std::max(rows, request.first);
    return rows;
  }
  int max_seq_len() const {
    int length = 0;
    for (const auto& request : requests) length = std::max(length, request.second);
    return length;
  }
  // In what q is multiplied with K and weights with V.
  int32_t product_dtype() const {
    if (cache_dtype != PINFER_FLOAT8_E4M3) return cache_dtype;
    return dtype == PINFER_FLOAT16 ? PINFER_FLOAT16 : PINFER_BFLOAT16;
  }
  std::string name() const {
    std::string text = std::string(dtype_name(cache_dtype)) + " x " + dtype_name(dtype) + " dim " +
                       std::to_string(head_dim) + " heads " + std::to_string(num_heads) + "/" +
                       std::to_string(num_kv_heads) + " block " + std::to_string(block_size) +
                       " window " + std::to_string(sliding_window) + " cap " +
                       std::to_string(logit_softcap);
    for (const auto& [rows, length] : requests) {
      text += " " + std::to_string(rows) + "@" + std::to_string(length);
    }
    return text;
  }
};

struct AttentionStep {
  AttentionCase c;
  DeviceTensor q, k_cache, v_cache, out;
  std::vector<int32_t> block_table, seq_lens, query_start_loc;
  int64_t max_blocks = 0;
  std::vector<std::vector<int64_t>> offsets;  // [request][position], of head 0 in the cache

  static constexpr int64_t kIdleRows = 2;  // behind the last request's

  AttentionStep(const AttentionCase& case_in, unsigned seed) : c(case_in) {
    std::mt19937 random(seed);
    max_blocks = (c.max_seq_len() + c.block_size - 1) / c.block_size + 1;
    const int64_t num_requests = static_cast<int64_t>(c.requests.size());
    std::vector<int32_t> ids(static_cast<size_t>(num_requests * max_blocks + 3));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    const int64_t padded = padded_head_dim(c.head_dim);
    const int64_t size = static_cast<int64_t>(ids.size()) * c.num_kv_heads * c.block_size * padded;
    k_cache = DeviceTensor(size, c.cache_dtype);
    v_cache = DeviceTensor(size, c.cache_dtype);
    query_start_loc.push_back(0);
    std::normal_distribution<float> normal;
    for (int64_t s = 0; s < num_requests; ++s) {
      const auto [rows, length] = c.requests[static_cast<size_t>(s)];
      seq_lens.push_back(length);
      query_start_loc.push_back(query_start_loc.back() + rows);
      // The first position that any row sees; blocks before it are not ours any more.
      const int lowest =
          c.sliding_window > 0 ? std::max(0, length - rows + 1 - c.sliding_window) : 0;
      offsets.emplace_back();
      for (int64_t i = 0; i < max_blocks; ++i) {
        const bool is_ours = i * c.block_size < length && (i + 1) * c.block_size > lowest;
        block_table.push_back(is_ours ? ids[static_cast<size_t>(s * max_blocks + i)] : 1 << 29);
      }
      for (int64_t position = 0; position < length; ++position) {
        const int64_t block =
            block_table[static_cast<size_t>(s * max_blocks + position / c.block_size)];
        const int64_t at = (block * c.num_kv_heads * c.block_size + position % c.block_size);
        offsets.back().push_back(at * padded);
        if (position < lowest) continue;
        for (int64_t h = 0; h < c.num_kv_heads; ++h) {
          for (int64_t d = 0; d < padded; ++d) {
            const int64_t i = (at + h * c.block_size) * padded + d;
            k_cache.set(i, d < c.head_dim ? normal(random) : 0.0f);
            v_cache.set(i, d < c.head_dim ? normal(random) : 0.0f);
          }
        }
      }
    }
    const int64_t num_tokens = query_start_loc.back() + kIdleRows;
    q = DeviceTensor(random_numbers(num_tokens * c.num_heads * c.head_dim, seed + 1), c.dtype);
    out = DeviceTensor(num_tokens * c.num_heads * c.head_dim, c.dtype);
  }

  AttentionTask task() const {
    AttentionTask task;
    task.q = q.data();
    task.out = out.data();
    task.dtype = c.dtype;
    task.cache = {k_cache.data(),
                  v_cache.data(),
                  c.cache_dtype,
                  k_cache.count() / (c.num_kv_heads * c.block_size * padded_head_dim(c.head_dim)),
                  c.block_size,
                  c.num_kv_heads,
                  c.head_dim,
                  c.k_scale,
                  c.v_scale};
    task.block_table = block_table.data();
    task.seq_lens = seq_lens.data();
    task.query_start_loc = query_start_loc.data();
    task.num_tokens = query_start_loc.back() + kIdleRows;
    task.num_requests = static_cast<int64_t>(c.requests.size());
    task.num_heads = c.num_heads;
    task.max_blocks = max_blocks;
    task.scale = 0.3f;
    task.sliding_window = c.sliding_window;
    task.logit_softcap = c.logit_softcap;
    return task;
  }

  // The largest error in units of what rounding allows; huge if rows of no request were written.
  double error() const {
    double worst = 0;
    for (size_t s = 0; s < c.requests.size(); ++s) {
      for (int row = 0; row < c.requests[s].first; ++row) {
        for (int64_t head = 0; head < c.num_heads; ++head) {
          worst = std::max(worst, row_error(s, row, head));
        }
      }
    }
    for (int64_t i = query_start_loc.back() * c.num_heads * c.head_dim; i < out.count(); ++i) {
      if (!std::isnan(out[i])) return 1e9;
    }
    return worst;
  }

 private:
  double row_error(size_t s, int row, int64_t head) const {
    const int end = c.requests[s].second - c.requests[s].first + row + 1;
    const int begin = c.sliding_window > 0 ? std::max(0, end - c.sliding_window) : 0;
    const int64_t head_offset =
        head / (c.num_heads / c.num_kv_heads) * c.block_size * padded_head_dim(c.head_dim);
    const int64_t first = ((query_start_loc[s] + row) * c.num_heads + head) * c.head_dim;
    std::vector<double> weights;
    double largest = -INFINITY, sum = 0;
    for (int j = begin; j < end; ++j) {
      double score = 0;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        const double x = rounded(q[first + d], c.product_dtype());
        score += x * k_cache[offsets[s][static_cast<size_t>(j)] + head_offset + d];
      }
      score *= static_cast<double>(0.3f) * c.k_scale;
      if (c.logit_softcap > 0) score = c.logit_softcap * std::tanh(score / c.logit_softcap);
      weights.push_back(score);
      largest = std::max(largest, score);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    // Of weights and of the output; float32 itself rounds scores.
    const int32_t product = c.product_dtype();
    const double rounding = product == PINFER_FLOAT32    ? 0
                            : product == PINFER_BFLOAT16 ? 1.0 / 256
                                                         : 1.0 / 2048;
    const double output = c.dtype == PINFER_FLOAT32    ? 0
                          : c.dtype == PINFER_BFLOAT16 ? 1.0 / 256
                                                       : 1.0 / 2048;
    double worst = 0;
    for (int64_t d = 0; d < c.head_dim; ++d) {
      double expected = 0, magnitude = 0;
      for (int j = begin; j < end; ++j) {
        const double term = weights[static_cast<size_t>(j - begin)] / sum * c.v_scale *
                            v_cache[offsets[s][static_cast<size_t>(j)] + head_offset + d];
        expected += term;
        magnitude += std::fabs(term);
      }
      const double allowed = (rounding + 2e-5) * magnitude + output * std::fabs(expected) + 1e-6;
      const double difference = std::fabs(out[first + d] - expected);
      worst = std::max(worst, std::isnan(difference) ? 1e9 : difference / allowed);
    }
    return worst;
  }
};

}  // namespace pinfer::cuda
