#include "bundle/bundle.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "bundle/cpu_target.h"
#include "core/sha256.h"

namespace pinfer {
namespace {

std::string hash(const std::string& text) {
  return to_hex(sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

// A bundle of two files on disk, whole until a test damages it.
class BundleTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/bundle_test_" + std::to_string(::getpid());
    ::mkdir(path_.c_str(), 0755);
    write("tokenizer.bin", "tables");
    write("chat_template.json", "{}");
    write_manifest(R"({"format_version":1,"exporter_version":"0","parts":["text"],
      "text":{"eos_token_ids":[]},"generation_defaults":{},"files":{
      "tokenizer.bin":{"size":6,"sha256":")" +
                   hash("tables") + R"("},
      "chat_template.json":{"size":2,"sha256":")" +
                   hash("{}") + R"("}}})");
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name, std::ios::binary | std::ios::trunc) << text;
  }

  void write_manifest(const std::string& text) {
    write("manifest.json", text);
    write("manifest.sha256", hash(text));
  }

  void expect_refused(VerifyLevel level, const std::string& part) {
    const auto result = Bundle::open(path_, level);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
  }

  std::string path_;
};

TEST_F(BundleTest, OpensAWholeBundle) {
  ASSERT_TRUE(Bundle::open(path_, VerifyLevel::SIZES_AND_CODE).ok());
  const auto result = Bundle::open(path_, VerifyLevel::EVERYTHING);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(result.value()->has_file("tokenizer.bin"));
  EXPECT_FALSE(result.value()->check_runnable("native").ok());  // text only
}

TEST_F(BundleTest, NamesMissingAndShortFiles) {
  write("tokenizer.bin", "table");
  expect_refused(VerifyLevel::SIZES_AND_CODE, "tokenizer.bin: expected 6 bytes, found 5");
  ::unlink((path_ + "/tokenizer.bin").c_str());
  expect_refused(VerifyLevel::SIZES_AND_CODE, "tokenizer.bin: file not found");
}

TEST_F(BundleTest, SmallFilesAreHashedAlwaysLargeOnesOnRequest) {
  write("chat_template.json", "[]");
  expect_refused(VerifyLevel::SIZES_AND_CODE, "chat_template.json: expected SHA-256");
  write("chat_template.json", "{}");
  write("tokenizer.bin", "tableZ");
  EXPECT_TRUE(Bundle::open(path_, VerifyLevel::SIZES_AND_CODE).ok());
  expect_refused(VerifyLevel::EVERYTHING, "tokenizer.bin: expected SHA-256");
}

TEST_F(BundleTest, ManifestAndItsHashMustAgree) {
  write("manifest.sha256", std::string(64, '0'));
  expect_refused(VerifyLevel::SIZES_AND_CODE, "does not match");
  write("manifest.sha256", "");
  expect_refused(VerifyLevel::SIZES_AND_CODE, "does not match");
  ::unlink((path_ + "/manifest.sha256").c_str());
  expect_refused(VerifyLevel::SIZES_AND_CODE, "manifest.sha256: file not found");
}

TEST_F(BundleTest, RefusesWhatIsNoDirectory) {
  EXPECT_FALSE(Bundle::open(path_ + "/nothing", VerifyLevel::SIZES_AND_CODE).ok());
  EXPECT_FALSE(Bundle::open(path_ + "/tokenizer.bin", VerifyLevel::SIZES_AND_CODE).ok());
}

TEST(CpuTarget, UnknownFeaturesAreMissing) {
  EXPECT_EQ(missing_cpu_features({"no-such-feature"}),
            (std::vector<std::string>{"no-such-feature"}));
  EXPECT_TRUE(missing_cpu_features({}).empty());
}

}  // namespace
}  // namespace pinfer
