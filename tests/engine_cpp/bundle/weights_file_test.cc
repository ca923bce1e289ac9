#include "bundle/weights_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace pinfer {
namespace {

// A safetensors file: 8-byte header size, header padded to 64 bytes, data.
std::string file_bytes(std::string header, size_t data_bytes) {
  while ((header.size() + 8) % 64 != 0) header += ' ';
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data_bytes, '\x01');
}

Result<std::unique_ptr<WeightsFile>> open(const std::string& bytes) {
  // A file of this process: tests of one suite run at the same time.
  const std::string path =
      testing::TempDir() + "/weights_file_test_" + std::to_string(::getpid()) + ".safetensors";
  std::ofstream(path, std::ios::binary) << bytes;
  auto result = WeightsFile::open(MappedFile::open(path).take());
  ::unlink(path.c_str());
  return result;
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const auto result = open(bytes);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::DATA_LOSS);
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

const char kHeader[] = R"({"a":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]},
                           "b":{"dtype":"BF16","shape":[3],"data_offsets":[64,70]},
                           "__pad_1":{"dtype":"U8","shape":[58],"data_offsets":[70,128]}})";

TEST(WeightsFile, FindsTensorsWhereTheyLie) {
  const auto result = open(file_bytes(kHeader, 128));
  ASSERT_TRUE(result.ok()) << result.status().message();
  const WeightTensor* a = result.value()->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data) % 64, 0u);
  EXPECT_NE(result.value()->find("b"), nullptr);
  EXPECT_EQ(result.value()->find("c"), nullptr);
  EXPECT_EQ(result.value()->find("__pad_1"), nullptr);
}

TEST(WeightsFile, NamesTheSameTensorsInACopy) {
  const auto result = open(file_bytes(kHeader, 128));
  ASSERT_TRUE(result.ok()) << result.status().message();
  const WeightsFile& file = *result.value();
  const std::vector<std::byte> copy(file.bytes().begin(), file.bytes().end());
  const std::unique_ptr<WeightsFile> moved = file.at(copy.data());
  EXPECT_EQ(moved->path(), file.path());
  EXPECT_TRUE(moved->bytes().empty());
  EXPECT_EQ(moved->find("c"), nullptr);
  for (const char* name : {"a", "b"}) {
    const auto* data = static_cast<const std::byte*>(moved->find(name)->data);
    EXPECT_EQ(moved->find(name)->shape, file.find(name)->shape);
    EXPECT_EQ(data - copy.data(),
              static_cast<const std::byte*>(file.find(name)->data) - file.bytes().data());
    EXPECT_EQ(*data, std::byte{1});
  }
}

TEST(WeightsFile, RefusesEveryTruncation) {
  const std::string whole = file_bytes(kHeader, 128);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(open(whole.substr(0, size)).ok()) << size;
  }
  expect_refused(whole + "x", "expected");
}

TEST(WeightsFile, RefusesHeadersThatLie) {
  const auto with = [](const std::string& tensor) { return file_bytes("{" + tensor + "}", 128); };
  expect_refused(with(R"("a":{"dtype":"F32","shape":[2,8],"data_offsets":[0,60]})"), "tensor a");
  expect_refused(with(R"("a":{"dtype":"F99","shape":[2,8],"data_offsets":[0,64]})"), "tensor a");
  expect_refused(with(R"("a":{"dtype":"F32","shape":[2,-8],"data_offsets":[0,64]})"), "tensor a");
  expect_refused(with(R"("a":{"dtype":"F32","shape":[32],"data_offsets":[64,192]})"), "offset");
  expect_refused(with(R"("a":{"dtype":"F32","shape":[32],"data_offsets":[-64,64]})"), "tensor a");
  expect_refused(
      with(R"("a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,64]})"),
      "tensor a");
  expect_refused(with(R"("a":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},
                         "b":{"dtype":"F32","shape":[16],"data_offsets":[32,96]})"),
                 "aligned");
  expect_refused(with(R"("a":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},
                         "b":{"dtype":"F32","shape":[16],"data_offsets":[0,64]})"),
                 "expected offset 64");
  expect_refused(with(R"("a":7)"), "tensor a");
  expect_refused(file_bytes("[]", 0), "JSON object");
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}", "header");
}

}  // namespace
}  // namespace pinfer
