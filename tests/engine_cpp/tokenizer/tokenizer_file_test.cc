// Damaged tokenizer files: an error or a wrong answer, never a crash. Run under ASan, too.
#include "tokenizer/tokenizer_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer_fixture.h"

namespace pinfer {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Opens the bytes and, if that works, uses everything that reads the tables.
void exercise(const std::string& bytes) {
  const auto tokenizer = Tokenizer::from_memory(bytes_of(bytes));
  if (!tokenizer.ok()) {
    EXPECT_FALSE(tokenizer.status().message().empty());
    return;
  }
  const Tokenizer& made = *tokenizer.value();
  std::vector<int32_t> ids;
  for (const char* text : {"hello world", "<s>Once upon a time</s>", " aba 🦙 unaffable 123\n"}) {
    auto encoded = made.encode(text, true);
    if (encoded.ok()) ids.insert(ids.end(), encoded.value().begin(), encoded.value().end());
  }
  for (int32_t id = 0; id < std::min(made.vocab_size(), 300); ++id) {
    made.id_to_token(id);
    made.token_bytes(id);
    ids.push_back(id);
  }
  StreamingDetokenizer stream(made, ids, false);
  for (const int32_t id : ids) {
    EXPECT_TRUE(made.decode(std::vector<int32_t>{id}, true).ok()) << id;
    stream.add(id);
  }
  stream.finish();
  made.token_to_id("hello");
}

Status open_status(const std::string& bytes) {
  return Tokenizer::from_memory(bytes_of(bytes)).status();
}

TEST(TokenizerFileTest, AMissingFileIsNamed) {
  const auto tokenizer = Tokenizer::open("/nonexistent/tokenizer.bin");
  EXPECT_EQ(tokenizer.status().code(), StatusCode::NOT_FOUND);
  EXPECT_NE(tokenizer.status().message().find("/nonexistent/tokenizer.bin"), std::string::npos);
}

TEST(TokenizerFileTest, OtherFilesAreRefused) {
  EXPECT_EQ(open_status("").code(), StatusCode::DATA_LOSS);
  EXPECT_EQ(open_status("PINF").code(), StatusCode::DATA_LOSS);
  EXPECT_EQ(open_status(std::string(4096, 'x')).code(), StatusCode::DATA_LOSS);
}

TEST(TokenizerFileTest, AnotherFormatVersionSaysBothNumbers) {
  std::string bytes = read_fixture("byte_level");
  bytes[8] = 9;
  const Status status = open_status(bytes);
  EXPECT_EQ(status.code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.message().find("version 9, expected 1"), std::string::npos) << status.message();
}

TEST(TokenizerFileTest, ATruncatedFileIsRefusedWithBothSizes) {
  const std::string bytes = read_fixture("byte_level");
  for (const size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{100}, size_t{24}}) {
    const Status status = open_status(bytes.substr(0, size));
    EXPECT_EQ(status.code(), StatusCode::DATA_LOSS);
    EXPECT_NE(status.message().find(std::to_string(size)), std::string::npos) << status.message();
  }
}

// The header still fits the file, but one section after another is shorter, empty or elsewhere.
TEST(TokenizerFileTest, EverySectionMayBeCutShort) {
  for (const char* name : kFixtures) {
    const std::string whole = read_fixture(name);
    uint32_t num_sections = 0;
    std::memcpy(&num_sections, whole.data() + 12, 4);
    for (uint32_t i = 0; i < num_sections; ++i) {
      const size_t entry = 24 + 24 * i;
      uint64_t offset = 0, size = 0;
      std::memcpy(&offset, whole.data() + entry + 8, 8);
      std::memcpy(&size, whole.data() + entry + 16, 8);
      for (const uint64_t new_size :
           {size / 2, size - size % 8 / 2 - 1, uint64_t{0}, size + 4096, ~uint64_t{0}}) {
        std::string bytes = whole;
        std::memcpy(bytes.data() + entry + 16, &new_size, 8);
        exercise(bytes);
      }
      std::string bytes = whole;
      for (uint64_t at = offset; at < offset + size; ++at) bytes[at] = '\xFF';
      exercise(bytes);
      for (uint64_t at = offset; at < offset + size; ++at) bytes[at] = 0;
      exercise(bytes);
    }
  }
}

TEST(TokenizerFileTest, RandomDamageNeverCrashes) {
  std::mt19937 random(4);
  for (const char* name : kFixtures) {
    const std::string whole = read_fixture(name);
    ASSERT_FALSE(whole.empty());
    for (int round = 0; round < 300; ++round) {
      std::string bytes = whole;
      for (unsigned flips = 1 + random() % 8; flips > 0; --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      exercise(bytes);
    }
  }
}

}  // namespace
}  // namespace pinfer
