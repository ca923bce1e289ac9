#include "core/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/mapped_file.h"

namespace pinfer {
namespace {

// Backwards: the order is free.
void for_each_backwards(size_t count, const std::function<void(size_t)>& copy) {
  for (size_t i = count; i-- > 0;) copy(i);
}

// The line of /proc/self/maps that an address lies in.
std::string mapping_of(const std::byte* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    std::sscanf(line.c_str(), "%lx-%lx", &begin, &end);
    const auto at = reinterpret_cast<unsigned long>(address);
    if (begin <= at && at < end) return line;
  }
  return "";
}

class HugePagesTest : public testing::Test {
 protected:
  void map(size_t size) {
    contents_.resize(size);
    std::mt19937_64 generator(size);
    for (char& c : contents_) c = static_cast<char>(generator());
    path_ = testing::TempDir() + "huge_pages_test.bin";
    std::ofstream(path_, std::ios::binary).write(contents_.data(), static_cast<long>(size));
    auto file = MappedFile::open(path_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = std::move(file.value());
  }
  void TearDown() override { std::remove(path_.c_str()); }
  bool is_same() const {
    return std::memcmp(file_->bytes().data(), contents_.data(), contents_.size()) == 0;
  }
  bool is_of_file(size_t offset) const {
    return mapping_of(file_->bytes().data() + offset).find("huge_pages_test") != std::string::npos;
  }

  std::string path_;
  std::vector<char> contents_;
  std::unique_ptr<MappedFile> file_;
};

TEST_F(HugePagesTest, MovesEverythingInPortions) {
  map(9 * kHugePageBytes + 12345);
  HugePageCopy copy(file_->bytes());
  if (copy.num_pages() == 0) GTEST_SKIP() << "the system knows no huge pages";
  EXPECT_GE(copy.num_pages(), 8u);
  EXPECT_LE(copy.num_pages(), 9u);
  const size_t middle = contents_.size() / 2;
  EXPECT_TRUE(is_of_file(middle));
  size_t portions = 0;
  while (!copy.is_done()) {
    copy.advance(3, for_each_backwards);
    ASSERT_TRUE(is_same()) << "after portion " << ++portions;
  }
  EXPECT_FALSE(is_of_file(middle));
  EXPECT_EQ(mapping_of(file_->bytes().data() + middle).substr(0, 90).find("rw"), std::string::npos);
  EXPECT_TRUE(is_of_file(contents_.size() - 1)) << "what does not fill a page stays";
  copy.advance(3, for_each_backwards);  // nothing is left
  EXPECT_TRUE(is_same());
}

TEST_F(HugePagesTest, CanEndHalfWay) {
  map(6 * kHugePageBytes);
  {
    HugePageCopy copy(file_->bytes());
    if (copy.num_pages() == 0) GTEST_SKIP() << "the system knows no huge pages";
    copy.advance(2, for_each_backwards);
    HugePageCopy moved = std::move(copy);
    EXPECT_TRUE(copy.is_done());  // NOLINT: a moved-from copy has nothing to do
    EXPECT_FALSE(moved.is_done());
    moved.advance(1, for_each_backwards);
  }
  EXPECT_TRUE(is_same());
}

TEST_F(HugePagesTest, LeavesSmallMappingsAlone) {
  map(kHugePageBytes - 1);
  HugePageCopy copy(file_->bytes());
  EXPECT_EQ(copy.num_pages(), 0u);
  EXPECT_TRUE(copy.is_done());
  copy.advance(1, for_each_backwards);
  EXPECT_TRUE(is_same());
  EXPECT_TRUE(HugePageCopy().is_done());
  EXPECT_TRUE(HugePageCopy(std::span<const std::byte>()).is_done());
}

// What has been moved is unmapped with the file; nothing else is.
TEST_F(HugePagesTest, LeavesNoMappingBehind) {
  const auto count = [] {
    std::ifstream maps("/proc/self/maps");
    size_t lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    return lines;
  };
  map(6 * kHugePageBytes);
  const size_t before = count();
  for (size_t pages : {size_t{1}, size_t{4}, size_t{99}}) {
    file_.reset();
    map(6 * kHugePageBytes);
    HugePageCopy copy(file_->bytes());
    copy.advance(pages, for_each_backwards);
  }
  file_.reset();
  map(6 * kHugePageBytes);
  EXPECT_LE(count(), before + 1);
}

}  // namespace
}  // namespace pinfer
