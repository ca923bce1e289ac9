#include "core/engine_config.h"

#include <limits>

#include "core/field_check.h"

namespace pinfer {
namespace {

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int32_t kMaxBlockSize = 256;
constexpr int32_t kMaxThreads = 1024;

}  // namespace

Status EngineConfig::validate() const {
  PINFER_RETURN_IF_ERROR(check_range("max_model_len", max_model_len, 0, kMaxInt));
  PINFER_RETURN_IF_ERROR(check_range("max_num_seqs", max_num_seqs, 1, kMaxInt));
  // Every running request gets at least one token in every step.
  PINFER_RETURN_IF_ERROR(
      check_range("max_num_batched_tokens", max_num_batched_tokens, max_num_seqs, kMaxInt));
  PINFER_RETURN_IF_ERROR(check_range("num_blocks", num_blocks, 0, kMaxNumBlocks));
  if (num_blocks == 1) return field_error("num_blocks", "at least 2 (one is the null block)", 1);
  PINFER_RETURN_IF_ERROR(check_range("block_size", block_size, 1, kMaxBlockSize));
  PINFER_RETURN_IF_ERROR(
      check_range("long_prefill_token_threshold", long_prefill_token_threshold, 0, kMaxInt));
  if (!(watermark >= 0.0 && watermark < 1.0)) {
    return field_error("watermark", "in [0, 1)", watermark);
  }
  PINFER_RETURN_IF_ERROR(check_range("threads", threads, 0, kMaxThreads));
  if (!(gpu_memory_utilization > 0.0 && gpu_memory_utilization <= 1.0)) {
    return field_error("gpu_memory_utilization", "in (0, 1]", gpu_memory_utilization);
  }
  PINFER_RETURN_IF_ERROR(check_range("max_cuda_graph_seqs", max_cuda_graph_seqs, 0, kMaxInt));
  return Status::ok_status();
}

}  // namespace pinfer
