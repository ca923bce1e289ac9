#include "executor/part_inputs.h"

#include <gtest/gtest.h>

#include "core/aligned_vector.h"
#include "executor/tensor_handle.h"

namespace pinfer {
namespace {

// One input, float32 [any, 4].
class PartInputs : public ::testing::Test {
 protected:
  PartInputs() : buffer_(256) {
    entry_.name = "decoder_layer";
    entry_.inputs = {{"x", AOTI_DTYPE_FLOAT32, {-1, 4}}};
  }

  TensorHandle tensor(void* data, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                      int64_t offset = 0, int32_t dtype = AOTI_DTYPE_FLOAT32) {
    AtenTensorHandle handle = nullptr;
    EXPECT_EQ(functions_.create_tensor_from_blob(data, static_cast<int64_t>(sizes.size()),
                                                 sizes.data(), strides.data(), offset, dtype,
                                                 AOTI_DEVICE_CPU, 0, &handle),
              0);
    return TensorHandle(&functions_, handle);
  }

  std::string check(const TensorHandle& tensor) {
    const AtenTensorHandle inputs[] = {tensor.handle()};
    return check_part_inputs(entry_, inputs, functions_).message();
  }

  const TensorFunctions& functions_ = native_provider().tensor_functions();
  ArtifactEntry entry_;
  AlignedVector<float> buffer_;
};

TEST_F(PartInputs, AcceptsDenseAlignedTensors) {
  EXPECT_EQ(check(tensor(buffer_.data(), {5, 4}, {4, 1})), "");
  EXPECT_EQ(check(tensor(buffer_.data(), {5, 4}, {4, 1}, 16)), "");  // 64 bytes further on
}

TEST_F(PartInputs, IgnoresStridesThatAreNeverUsed) {
  EXPECT_EQ(check(tensor(buffer_.data(), {1, 4}, {77, 1})), "");
  EXPECT_EQ(check(tensor(buffer_.data(), {0, 4}, {3, 7})), "");
}

TEST_F(PartInputs, RefusesASliceAtAnOffset) {
  const std::string expected =
      "decoder_layer: input x: expected an address that is a multiple of 64, found one 4 bytes "
      "past it";
  EXPECT_EQ(check(tensor(buffer_.data() + 1, {5, 4}, {4, 1})), expected);
  EXPECT_EQ(check(tensor(buffer_.data(), {5, 4}, {4, 1}, 1)), expected);
}

TEST_F(PartInputs, RefusesRowsOfALargerTensor) {
  EXPECT_EQ(check(tensor(buffer_.data(), {5, 4}, {6, 1})),
            "decoder_layer: input x: expected dense strides of shape [5, 4], found [6, 1]");
}

TEST_F(PartInputs, RefusesATransposedTensor) {
  EXPECT_EQ(check(tensor(buffer_.data(), {4, 4}, {1, 4})),
            "decoder_layer: input x: expected dense strides of shape [4, 4], found [1, 4]");
}

TEST_F(PartInputs, RefusesABroadcastTensor) {
  EXPECT_EQ(check(tensor(buffer_.data(), {5, 4}, {0, 1})),
            "decoder_layer: input x: expected dense strides of shape [5, 4], found [0, 1]");
}

TEST_F(PartInputs, RefusesOtherShapes) {
  EXPECT_EQ(check(tensor(buffer_.data(), {5, 3}, {3, 1})),
            "decoder_layer: input x: expected shape [-1, 4] (-1: any), found [5, 3]");
  EXPECT_EQ(check(tensor(buffer_.data(), {4}, {1})),
            "decoder_layer: input x: expected shape [-1, 4] (-1: any), found [4]");
}

TEST_F(PartInputs, RefusesOtherDtypes) {
  EXPECT_EQ(check(tensor(buffer_.data(), {5, 4}, {4, 1}, 0, AOTI_DTYPE_BFLOAT16)),
            "decoder_layer: input x: expected float32, found bfloat16");
}

TEST_F(PartInputs, RefusesAMissingTensor) {
  EXPECT_EQ(check(TensorHandle()), "decoder_layer: input x: expected a tensor, found none");
}

}  // namespace
}  // namespace pinfer
