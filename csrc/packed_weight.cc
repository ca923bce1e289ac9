#include "csrc/packed_weight.h"

#include "csrc/kernels/quantized_weight.h"
#include "csrc/ops_error.h"

namespace pinfer {

int32_t check_weight_format(const char* op, const PackedWeight& weight) {
  const auto group = static_cast<long long>(weight.group_size);
  switch (weight.dtype) {
    case PINFER_FLOAT32:
    case PINFER_BFLOAT16:
    case PINFER_INT8:
      PINFER_OPS_CHECK(group == 0, "%s: group_size must be 0 for this weight dtype, got %lld", op,
                       group);
      return PINFER_OPS_OK;
    case PINFER_INT4:
      PINFER_OPS_CHECK(group >= 32 && group % 32 == 0 && group <= 4096,
                       "%s: group_size of an int4 weight must be a multiple of 32 up to 4096, got "
                       "%lld",
                       op, group);
      return PINFER_OPS_OK;
    default:
      return ops_error(PINFER_OPS_INVALID_ARGUMENT,
                       "%s: weight dtype must be float32 (6), bfloat16 (15), int8 (1) or int4 (0), "
                       "got %d",
                       op, weight.dtype);
  }
}

int64_t packed_bytes(const PackedWeight& weight, int64_t n, int64_t k) {
  const int64_t num_panels = (n + kPanelWidth - 1) / kPanelWidth;
  switch (weight.dtype) {
    case PINFER_FLOAT32:
      return num_panels * k * kPanelWidth * 4;
    case PINFER_BFLOAT16:
      return num_panels * ((k + 1) / 2) * kPanelWidth * 4;
    case PINFER_INT8:
      return num_panels * Int8Layout::panel_bytes(k);
    default:
      return num_panels * Int4Layout::panel_bytes(k, weight.group_size);
  }
}

}  // namespace pinfer
