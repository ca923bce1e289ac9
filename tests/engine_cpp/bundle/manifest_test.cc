#include "bundle/manifest.h"

#include <gtest/gtest.h>

namespace pinfer {
namespace {

// A text-only manifest with one file.
std::string text_manifest(const std::string& extra = "") {
  return R"({"format_version": 1, "exporter_version": "0.1.0", "parts": ["text"],
             "files": {"tokenizer.bin": {"size": 3, "sha256": ")" +
         std::string(64, 'a') + R"("}}, "text": {"eos_token_ids": [2, 5], "bos_token_id": 1},
             "generation_defaults": {"temperature": 0.5})" +
         extra + "}";
}

void expect_refused(const std::string& text, StatusCode code, const std::string& part) {
  const Result<Manifest> result = Manifest::parse(text, "b/manifest.json");
  ASSERT_FALSE(result.ok()) << text;
  EXPECT_EQ(result.status().code(), code);
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Manifest, ReadsATextBundle) {
  const Result<Manifest> manifest = Manifest::parse(text_manifest(), "m");
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_TRUE(manifest.value().has_text);
  EXPECT_FALSE(manifest.value().has_model);
  EXPECT_EQ(manifest.value().eos_token_ids, (std::vector<int32_t>{2, 5}));
  EXPECT_EQ(manifest.value().bos_token_id, 1);
  EXPECT_EQ(manifest.value().generation_defaults.temperature, 0.5);
  EXPECT_FALSE(manifest.value().generation_defaults.top_k.has_value());
  EXPECT_EQ(manifest.value().files.at("tokenizer.bin").size, 3);
}

TEST(Manifest, RefusesWhatIsNotJson) {
  expect_refused("", StatusCode::DATA_LOSS, "not valid JSON");
  expect_refused("{", StatusCode::DATA_LOSS, "not valid JSON");
  expect_refused("[]", StatusCode::DATA_LOSS, "expected an object");
}

TEST(Manifest, RefusesAnotherFormatVersion) {
  expect_refused(replaced(text_manifest(), "\"format_version\": 1", "\"format_version\": 2"),
                 StatusCode::FAILED_PRECONDITION, "version 2, this engine reads 1");
}

TEST(Manifest, NamesTheFieldThatIsWrong) {
  expect_refused(replaced(text_manifest(), "[2, 5]", "[2, -5]"), StatusCode::DATA_LOSS,
                 "manifest.text.eos_token_ids[1]");
  expect_refused(replaced(text_manifest(), "\"size\": 3", "\"size\": \"3\""), StatusCode::DATA_LOSS,
                 "manifest.files.tokenizer.bin.size");
  expect_refused(replaced(text_manifest(), "aaaa", "AAAA"), StatusCode::DATA_LOSS, "sha256");
  expect_refused(replaced(text_manifest(), "\"parts\": [\"text\"],", ""), StatusCode::DATA_LOSS,
                 "manifest.parts: missing");
  // A model's fields are needed once the parts name a model.
  expect_refused(replaced(text_manifest(), "[\"text\"]", "[\"text\", \"model\"]"),
                 StatusCode::DATA_LOSS, "manifest.model: missing");
}

TEST(Manifest, RefusesTasksAndPoolingThatItDoesNotKnow) {
  const auto manifest = [](const std::string& fields) {
    const std::string text = text_manifest(", \"model\": {}, " + fields);
    return replaced(text, "[\"text\"]", "[\"text\", \"model\"]");
  };
  expect_refused(manifest(R"("task": "classify")"), StatusCode::DATA_LOSS, "generate or embed");
  expect_refused(manifest(R"("task": "embed")"), StatusCode::DATA_LOSS,
                 "manifest.pooling: missing");
  expect_refused(manifest(R"("task": "embed", "pooling": {"mode": "cls"})"), StatusCode::DATA_LOSS,
                 "last or mean");
  expect_refused(manifest(R"("task": "embed", "pooling": {"mode": "last", "normalize": 1})"),
                 StatusCode::DATA_LOSS, "manifest.pooling.normalize");
  expect_refused(manifest(R"("task": "embed", "pooling": {"mode": "mean", "normalize": true,
                             "prompts": {"a": "A: "}, "default_prompt_name": "b"})"),
                 StatusCode::DATA_LOSS, "the name of a prompt");
}

TEST(Manifest, RefusesFileNamesOutsideTheBundle) {
  for (const char* name : {"../x", "/etc/passwd", "a/../../x", "", "a//b", "./a"}) {
    expect_refused(replaced(text_manifest(), "tokenizer.bin", name), StatusCode::DATA_LOSS,
                   "relative path below the bundle");
  }
}

TEST(Dtypes, NamesAndCodesMatch) {
  EXPECT_EQ(dtype_name(dtype_code("bfloat16")), "bfloat16");
  EXPECT_EQ(dtype_size(dtype_code("float32")), 4);
  EXPECT_EQ(dtype_code("float17"), -1);
  EXPECT_EQ(dtype_size(99), 0);
}

}  // namespace
}  // namespace pinfer
