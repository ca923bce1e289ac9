#include <gtest/gtest.h>

#include "csrc/kernels/kernels_cuda.h"
#include "device_tensor.h"
#include "device_weight.h"

namespace pinfer::cuda {
namespace {

TEST(AddScaledTest, AddsAndScalesEveryNumber) {
  for (const int64_t count : {1, 255, 256, 257, 1000}) {
    const std::vector<float> x = random_numbers(count, 1), y = random_numbers(count, 2);
    for (const bool has_y : {true, false}) {
      const DeviceTensor x_device(x, PINFER_FLOAT32), y_device(y, PINFER_FLOAT32);
      ASSERT_EQ(
          add_scaled(static_cast<float*>(x_device.data()),
                     has_y ? static_cast<float*>(y_device.data()) : nullptr, count, 1.5f, nullptr),
          0)
          << pinfer_ops_last_error();
      for (int64_t i = 0; i < count; ++i) {
        const size_t at = static_cast<size_t>(i);
        ASSERT_EQ(x_device[i], (x[at] + (has_y ? y[at] : 0.0f)) * 1.5f) << count << " " << i;
      }
    }
  }
}

TEST(AddScaledTest, NothingIsDoneForNoNumbers) {
  EXPECT_EQ(add_scaled(nullptr, nullptr, 0, 1, nullptr), 0);
  EXPECT_NE(add_scaled(nullptr, nullptr, 1, 1, nullptr), 0);
  EXPECT_NE(add_scaled(nullptr, nullptr, -1, 1, nullptr), 0);
}

}  // namespace
}  // namespace pinfer::cuda
