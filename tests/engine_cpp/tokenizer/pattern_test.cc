#include "tokenizer/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

namespace pinfer {
namespace {

using nlohmann::json;

// Classes over ASCII: bit 0 letters, bit 1 digits, bit 2 spaces, bit 3 everything.
std::string make_class_file() {
  std::vector<uint64_t> page(512, 8);
  for (int c = 0; c < 128; ++c) {
    if (std::isalpha(c)) page[static_cast<size_t>(c)] |= 1;
    if (std::isdigit(c)) page[static_cast<size_t>(c)] |= 2;
    if (std::isspace(c)) page[static_cast<size_t>(c)] |= 4;
  }
  std::vector<uint16_t> index(kNumCodePointBlocks, 1);
  index[0] = 0;
  const uint64_t index_size = index.size() * 2, page_size = page.size() * 8;
  const uint64_t index_at = 128, page_at = (index_at + index_size + 63) / 64 * 64;
  std::string file(page_at + page_size, '\0');
  const uint32_t version = 1, count = 2, class_index = 11, class_pages = 12;
  const uint64_t file_size = file.size();
  std::memcpy(file.data(), "PINFTOK1", 8);
  std::memcpy(file.data() + 8, &version, 4);
  std::memcpy(file.data() + 12, &count, 4);
  std::memcpy(file.data() + 16, &file_size, 8);
  const auto put_entry = [&](size_t at, uint32_t id, uint64_t offset, uint64_t size) {
    std::memcpy(file.data() + at, &id, 4);
    std::memcpy(file.data() + at + 8, &offset, 8);
    std::memcpy(file.data() + at + 16, &size, 8);
  };
  put_entry(24, class_index, index_at, index_size);
  put_entry(48, class_pages, page_at, page_size);
  std::memcpy(file.data() + index_at, index.data(), index_size);
  std::memcpy(file.data() + page_at, page.data(), page_size);
  return file;
}

class PatternTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string bytes = make_class_file();
    auto file = TokenizerFile::copy(
        {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "classes");
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = file.take();
    auto classes = CharClasses::open(*file_);
    ASSERT_TRUE(classes.ok()) << classes.status().message();
    classes_ = classes.take();
  }

  // All matches of the program, joined by '|'.
  std::string matches(const json& nodes, const std::string& text) {
    const auto pattern = Pattern::parse({{"nodes", nodes}, {"start", nodes.size() - 1}}, classes_);
    EXPECT_TRUE(pattern.ok()) << pattern.status().message();
    std::string joined;
    PatternMatch match;
    bool found = true;
    for (size_t from = 0; found; from = match.end) {
      EXPECT_TRUE(pattern.value().find(text, from, &match, &found).ok());
      found = found && match.end > match.begin;
      if (!found) break;
      joined += (joined.empty() ? "" : "|") + text.substr(match.begin, match.end - match.begin);
    }
    return joined;
  }

  std::string parse_error(const json& nodes, int start) {
    return Pattern::parse({{"nodes", nodes}, {"start", start}}, classes_).status().message();
  }

  std::unique_ptr<TokenizerFile> file_;
  CharClasses classes_;
};

constexpr uint32_t kMany = 0xFFFFFFFF;

TEST_F(PatternTest, ClassLoops) {
  EXPECT_EQ(matches({{0}, {1, 0, 1, kMany, 0, 0}}, "ab1cd"), "ab|cd");
  EXPECT_EQ(matches({{0}, {1, 1, 1, 3, 0, 0}}, "12345"), "123|45");
  EXPECT_EQ(matches({{0}, {1, 1, 2, 3, 1, 0}}, "12345"), "12|34");                // lazy
  EXPECT_EQ(matches({{0}, {11, "b", 0}, {1, 0, 0, kMany, 0, 1}}, "aab"), "aab");  // gives back
  EXPECT_EQ(matches({{0}, {11, "b", 0}, {1, 0, 0, kMany, 2, 1}}, "aab"), "");     // possessive
  EXPECT_EQ(matches({{0}, {11, "b", 0}, {1, 3, 1, kMany, 1, 1}}, "éabb"), "éab");
}

TEST_F(PatternTest, AlternativesGoInOrder) {
  const json nodes = {{0}, {11, "ab", 0}, {11, "a", 0}, {1, 2, 1, kMany, 0, 0}, {2, {1, 2, 3}}};
  EXPECT_EQ(matches(nodes, "aab  x"), "a|ab|  ");
}

TEST_F(PatternTest, LookaheadTakesNothing) {
  const json spaces = {{0}, {1, 0, 1, 1, 0, 0}, {3, 1, 1, 0}, {1, 2, 1, kMany, 0, 2}};
  EXPECT_EQ(matches(spaces, "   a  "), "  |  ");
}

TEST_F(PatternTest, AtomicGroupsGiveNothingBack) {
  const json atomic = {{0}, {1, 0, 1, kMany, 0, 0}, {11, "b", 0}, {4, 1, 2}};
  EXPECT_EQ(matches(atomic, "aab"), "");
}

TEST_F(PatternTest, Assertions) {
  EXPECT_EQ(matches({{0}, {1, 0, 1, 1, 0, 0}, {5, 1}}, "ab\ncd"), "a|c");
  EXPECT_EQ(matches({{0}, {6, 0}, {1, 0, 1, 1, 0, 1}}, "ab\ncd"), "b|d");
  EXPECT_EQ(matches({{0}, {1, 0, 1, 1, 0, 0}, {7, 1}}, "ab\ncd"), "a");
  EXPECT_EQ(matches({{0}, {8, 0}, {1, 0, 1, 1, 0, 1}}, "ab\ncd"), "d");
  EXPECT_EQ(matches({{0}, {1, 0, 1, 1, 0, 0}, {9, 0, 0, 1}}, "ab cd"), "a|c");
  EXPECT_EQ(matches({{0}, {1, 0, 1, 1, 0, 0}, {9, 0, 1, 1}}, "ab cd"), "b|d");
}

TEST_F(PatternTest, ClassSequences) {
  const json pairs = {{0}, {11, "x", 0}, {10, {0, 1}, 1, kMany, 0, 1}};
  EXPECT_EQ(matches(pairs, "a1b2x"), "a1b2x");
  EXPECT_EQ(matches(pairs, "a1bx"), "");
  const json optional = {{0}, {11, "b2", 0}, {10, {0, 1}, 0, kMany, 0, 1}};
  EXPECT_EQ(matches(optional, "a1b2"), "a1b2");
}

TEST_F(PatternTest, EndlessBacktrackingGivesUp) {
  // a?a?...a?b: every way to share the letters out is tried.
  json nodes = {{0}, {11, "b", 0}};
  for (int i = 1; i <= 40; ++i) nodes.push_back({1, 0, 0, 1, 0, i});
  const auto pattern = Pattern::parse({{"nodes", nodes}, {"start", nodes.size() - 1}}, classes_);
  PatternMatch match;
  bool found = false;
  const Status status = pattern.value().find(std::string(40, 'a'), 0, &match, &found);
  EXPECT_EQ(status.code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(PatternTest, WrongProgramsAreRefused) {
  EXPECT_NE(parse_error({{99}}, 0).find("unknown kind"), std::string::npos);
  EXPECT_NE(parse_error({{0}, {11, "a", 1}}, 1).find("out of range"), std::string::npos);
  EXPECT_NE(parse_error({{0}, {1, 64, 1, 1, 0, 0}}, 1).find("out of range"), std::string::npos);
  EXPECT_NE(parse_error({{0}, {1, 0, 2, 1, 0, 0}}, 1).find("out of range"), std::string::npos);
  EXPECT_NE(parse_error({{0}, {2, {1}}}, 1).find("out of range"), std::string::npos);
  EXPECT_NE(parse_error({{0}}, 5).find("start"), std::string::npos);
  EXPECT_NE(parse_error(json::array(), 0).find("nodes"), std::string::npos);
}

}  // namespace
}  // namespace pinfer
