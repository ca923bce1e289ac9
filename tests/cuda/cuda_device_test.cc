// The device and the provider over the fake driver.
#include "csrc/shim/cuda_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "csrc/ops.h"
#include "csrc/shim/cuda_images.h"
#include "csrc/shim/cuda_memory.h"
#include "csrc/shim/cuda_op_shims.h"
#include "csrc/shim/cuda_runtime.h"
#include "csrc/shim/provider.h"
#include "fake_driver.h"

namespace pinfer {
namespace {

const std::string kDriver = PINFER_FAKES "/libcuda.so.1";
const std::string kKernels = PINFER_FAKES "/libpinfer_cuda.so";

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override { fake_cuda_reset(1, 90, uint64_t{64} << 20, 13000); }
  void TearDown() override {
    device_.reset();
    EXPECT_STREQ(fake_cuda_faults(), "");
    EXPECT_STREQ(fake_cuda_alive(), "");
  }

  void open() {
    std::string error;
    device_ = CudaDevice::open({kDriver, kKernels, 0}, &error);
    ASSERT_NE(device_, nullptr) << error;
  }

  std::string why_not_open(CudaDeviceOptions options = {kDriver, kKernels, 0}) {
    std::string error;
    EXPECT_EQ(CudaDevice::open(options, &error), nullptr);
    EXPECT_STREQ(fake_cuda_alive(), "");
    return error;
  }

  std::shared_ptr<CudaDevice> device_;
};

TEST_F(CudaDeviceTest, TellsWhatTheDriverTells) {
  open();
  EXPECT_EQ(device_->name(), "fake GPU");
  EXPECT_EQ(device_->arch(), 90);
  EXPECT_EQ(device_->num_processors(), 132);
  EXPECT_EQ(CudaDevice::current(), device_.get());
  EXPECT_EQ(cuda_provider().stream(), device_->stream());
  EXPECT_EQ(cuda_provider().device_type(), AOTI_DEVICE_CUDA);
  device_.reset();
  EXPECT_EQ(CudaDevice::current(), nullptr);
}

TEST_F(CudaDeviceTest, SaysWhyThereIsNone) {
  EXPECT_NE(why_not_open({"libno_such_driver.so", kKernels, 0}).find("no CUDA driver: "),
            std::string::npos);
  EXPECT_NE(why_not_open({kDriver, "libno_such_kernels.so", 0})
                .find("the library of CUDA kernels cannot be opened: libno_such_kernels.so"),
            std::string::npos);
  // A library that is something else.
  EXPECT_EQ(why_not_open({kDriver, kDriver, 0}), "libpinfer_cuda.so: expected version 1, found 0");
  EXPECT_NE(why_not_open({"libm.so.6", kKernels, 0}).find("the CUDA driver has no cuInit"),
            std::string::npos);
  EXPECT_EQ(why_not_open({kDriver, kKernels, 3}), "device 3: there are 1");
  fake_cuda_reset(1, 90, 1 << 20, 11040);
  EXPECT_EQ(why_not_open(), "the CUDA driver is version 11.4, at least 12.0 is needed");
  fake_cuda_reset(0, 90, 1 << 20, 13000);
  EXPECT_EQ(why_not_open(), "the CUDA driver has found no device");
  fake_cuda_reset(1, 90, 1 << 20, 13000);
  open();
  std::string error;
  EXPECT_EQ(CudaDevice::open({kDriver, kKernels, 0}, &error), nullptr);
  EXPECT_NE(error.find("one engine for CUDA at a time"), std::string::npos);
}

TEST_F(CudaDeviceTest, OpeningFailsCleanlyAtEveryCall) {
  open();
  const int64_t num_calls = fake_cuda_num_calls();
  device_.reset();
  for (int64_t call = 0; call < num_calls; ++call) {
    fake_cuda_reset(1, 90, 1 << 20, 13000);
    fake_cuda_fail_at(call, 719);
    const std::string error = why_not_open();
    EXPECT_EQ(error, std::string(fake_cuda_failed_function()) +
                         ": CUDA_ERROR_LAUNCH_FAILED (719): "
                         "an error of the fake driver");
  }
  EXPECT_GT(num_calls, 8);
}

TEST_F(CudaDeviceTest, OutOfMemoryComesWithNumbers) {
  open();
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(device_->allocate(40 << 20, "weights", &first), 0);
  EXPECT_EQ(device_->allocate(30 << 20, "cache blocks", &second), PINFER_OPS_OUT_OF_MEMORY);
  EXPECT_STREQ(pinfer_ops_last_error(),
               "out of device memory: cache blocks take 30.0 MiB, 24.0 of 64.0 MiB are free on "
               "fake GPU");
  device_->free(first);
}

TEST_F(CudaDeviceTest, BuffersAreUsedAgain) {
  open();
  std::vector<void*> places;
  for (int round = 0; round < 3; ++round) {
    void* a = device_->take_buffer(1000);
    void* b = device_->take_buffer(100000);
    void* c = device_->take_buffer(1);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % kCudaBufferAlignment, 0u);
    device_->give_buffer(b);
    void* d = device_->take_buffer(60000);  // where b was
    EXPECT_EQ(d, b);
    for (void* buffer : {a, c, d}) device_->give_buffer(buffer);
    places.push_back(a);
    EXPECT_EQ(device_->arena().num_taken(), 0u);
  }
  EXPECT_EQ(places[0], places[2]);
  EXPECT_EQ(device_->arena().region_bytes(), size_t{2} << 20);
  // Larger than what there is: another region; larger than the device: none.
  void* large = device_->take_buffer(10 << 20);
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(device_->take_buffer(100 << 20), nullptr);
  EXPECT_NE(std::string(pinfer_ops_last_error()).find("intermediate buffers take 100.0 MiB"),
            std::string::npos);
  device_->give_buffer(large);
  EXPECT_EQ(device_->arena().region_bytes(), size_t{12} << 20);
}

TEST_F(CudaDeviceTest, TensorsShareMemoryUntilTheLastHandle) {
  open();
  const TensorFunctions& functions = cuda_provider().tensor_functions();
  const int64_t sizes[2] = {3, 4}, strides[2] = {4, 1};
  AtenTensorHandle tensor = nullptr, view = nullptr, copy = nullptr;
  ASSERT_EQ(
      functions.empty_strided(2, sizes, strides, AOTI_DTYPE_FLOAT32, AOTI_DEVICE_CUDA, 0, &tensor),
      0);
  EXPECT_NE(
      functions.empty_strided(2, sizes, strides, AOTI_DTYPE_FLOAT32, AOTI_DEVICE_CPU, 0, &copy), 0);
  const auto reinterpret = reinterpret_cast<decltype(&DeviceTensors::reinterpret_tensor)>(
      cuda_provider().find("aoti_torch__reinterpret_tensor"));
  const int64_t row = 4, one = 1;
  ASSERT_EQ(reinterpret(tensor, 1, &row, &one, 4, &view), 0);
  functions.delete_tensor_object(tensor);
  EXPECT_EQ(device_->arena().num_taken(), 1u);
  const auto clone = reinterpret_cast<decltype(&DeviceTensors::clone)>(
      cuda_provider().find("aoti_torch_clone_preserve_strides"));
  ASSERT_EQ(clone(view, &copy), 0);
  EXPECT_EQ(device_->arena().num_taken(), 2u);
  functions.delete_tensor_object(view);
  functions.delete_tensor_object(copy);
  EXPECT_EQ(device_->arena().num_taken(), 0u);
}

TEST_F(CudaDeviceTest, EveryPromisedNameIsThere) {
  open();
  for (const char* name :
       {"aoti_torch_cuda_row_linear", "aoti_torch_cuda_rotary_attention", "aoti_torch_warn",
        "aoti_torch_create_cuda_stream_guard", "aoti_torch_delete_cuda_stream_guard",
        "cuLaunchKernel", "cudaMemcpy", "cudaSetDevice", "aoti_torch_get_data_ptr"}) {
    EXPECT_NE(cuda_provider().find(name), nullptr) << name;
  }
  EXPECT_EQ(cuda_provider().find("aoti_torch_cpu_linear"), nullptr);
  EXPECT_EQ(cuda_provider().find("cuNoSuchFunction"), nullptr);
}

TEST_F(CudaDeviceTest, RuntimeFunctionsReportAndRemember) {
  open();
  const auto allocate =
      reinterpret_cast<int32_t (*)(void**, size_t)>(find_cuda_function("cudaMalloc"));
  const auto last = reinterpret_cast<int32_t (*)()>(find_cuda_function("cudaGetLastError"));
  const auto text =
      reinterpret_cast<const char* (*)(int32_t)>(find_cuda_function("cudaGetErrorString"));
  void* memory = nullptr;
  EXPECT_EQ(allocate(&memory, size_t{1} << 40), kCudaOutOfMemory);
  EXPECT_EQ(last(), kCudaOutOfMemory);
  EXPECT_EQ(last(), kCudaSuccess);
  EXPECT_STREQ(text(kCudaOutOfMemory), "out of memory");
  const auto set_device = reinterpret_cast<int32_t (*)(int)>(find_cuda_function("cudaSetDevice"));
  EXPECT_EQ(set_device(0), 0);
  EXPECT_NE(set_device(1), 0);
}

TEST_F(CudaDeviceTest, OpsRefuseTensorsThatDoNotFit) {
  open();
  const auto linear = reinterpret_cast<AOTITorchError (*)(
      AtenTensorHandle, AtenTensorHandle, int64_t, int64_t, int64_t, AtenTensorHandle*)>(
      find_cuda_op_shim("aoti_torch_cuda_row_linear"));
  const TensorFunctions& functions = cuda_provider().tensor_functions();
  const auto make = [&](int64_t rows, int64_t columns, int32_t dtype) {
    const int64_t sizes[2] = {rows, columns}, strides[2] = {columns, 1};
    AtenTensorHandle tensor = nullptr;
    functions.empty_strided(2, sizes, strides, dtype, AOTI_DEVICE_CUDA, 0, &tensor);
    device_->clear(tensor->data, static_cast<size_t>(tensor->storage_bytes));
    return tensor;
  };
  AtenTensorHandle x = make(3, 40, AOTI_DTYPE_FLOAT32), weight = make(20, 64, AOTI_DTYPE_BFLOAT16);
  AtenTensorHandle out = nullptr;
  EXPECT_NE(linear(x, weight, PINFER_BFLOAT16, 0, 21, &out), 0);
  EXPECT_STREQ(pinfer_ops_last_error(),
               "row_linear: the packed weight does not fit x, its format and out_features");
  EXPECT_NE(linear(weight, weight, PINFER_BFLOAT16, 0, 20, &out), 0);
  ASSERT_EQ(linear(x, weight, PINFER_BFLOAT16, 0, 20, &out), 0) << pinfer_ops_last_error();
  EXPECT_EQ(out->sizes[0], 3);
  EXPECT_EQ(out->sizes[1], 20);
  EXPECT_EQ(fake_cuda_num_launches(), 1);
  for (const AtenTensorHandle tensor : {x, weight, out}) functions.delete_tensor_object(tensor);
}

TEST(CudaArchTest, CodeRunsOnLaterDevicesOfItsGeneration) {
  const CudaArch sm_80 = parse_cuda_arch("80"), sm_90 = parse_cuda_arch("90a");
  EXPECT_TRUE(sm_80.runs_on(80) && sm_80.runs_on(89));
  EXPECT_FALSE(sm_80.runs_on(75) || sm_80.runs_on(90));
  EXPECT_TRUE(sm_90.runs_on(90));
  EXPECT_FALSE(sm_90.runs_on(91) || sm_90.runs_on(100));
  EXPECT_EQ(sm_90.name(), "90a");
  const CudaArch sm_86 = parse_cuda_arch("86");
  EXPECT_EQ(choose_cuda_arch({sm_80, sm_86, sm_90}, 89)->number, 86);
  EXPECT_EQ(choose_cuda_arch({sm_86, sm_80}, 80)->number, 80);
  EXPECT_EQ(choose_cuda_arch({sm_80, sm_90}, 100), nullptr);
  for (const char* bad : {"", "a", "sm_80", "80b", "90aa", "-80"}) {
    EXPECT_EQ(parse_cuda_arch(bad).number, 0) << bad;
  }
}

}  // namespace
}  // namespace pinfer
