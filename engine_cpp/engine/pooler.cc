#include "engine/pooler.h"

#include <algorithm>
#include <cmath>

namespace pinfer {
namespace {

constexpr double kLeastLength = 1e-12;  // what PyTorch's normalize() divides by at least

double length_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

void Pooler::add(const std::string& request_id, const HiddenStates& rows) {
  Sum& sum = sums_[request_id];
  sum.values.resize(static_cast<size_t>(rows.hidden_size));
  for (int32_t i = 0; i < rows.num_rows; ++i) {
    const std::span<const float> row = rows.row(i);
    for (size_t j = 0; j < row.size(); ++j) sum.values[j] += row[j];
  }
  sum.num_tokens += rows.num_rows;
}

Embedding Pooler::take(const std::string& request_id, const PoolingParams& params) {
  Embedding embedding{.request_id = request_id};
  const auto node = sums_.extract(request_id);
  embedding.failed = node.empty() || node.mapped().num_tokens == 0;
  if (embedding.failed) return embedding;
  std::span<double> values = node.mapped().values;
  if (params.dimensions > 0) {
    values = values.first(std::min(static_cast<size_t>(params.dimensions), values.size()));
  }
  for (double& value : values) value /= static_cast<double>(node.mapped().num_tokens);
  const double scale = params.normalize ? 1 / std::max(length_of(values), kLeastLength) : 1.0;
  embedding.values.reserve(values.size());
  for (const double value : values) {
    embedding.values.push_back(static_cast<float>(value * scale));
    embedding.failed |= !std::isfinite(embedding.values.back());
  }
  return embedding;
}

void Pooler::forget(std::span<const std::string> request_ids) {
  for (const std::string& id : request_ids) sums_.erase(id);
}

}  // namespace pinfer
