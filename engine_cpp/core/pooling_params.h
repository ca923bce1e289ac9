// How the hidden states of a request's tokens become its embedding.
#pragma once

#include <cstdint>

namespace pinfer {

enum class PoolingMode {
  LAST,  // the last token's
  MEAN,  // the mean of all tokens'
};

struct PoolingParams {
  PoolingMode mode = PoolingMode::LAST;
  bool normalize = true;   // to length 1
  int32_t dimensions = 0;  // leading numbers that are kept, before they are normalised; 0: all
};

}  // namespace pinfer
