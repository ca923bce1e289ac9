#include "core/utf8.h"

#include <gtest/gtest.h>

namespace pinfer {
namespace {

TEST(Utf8Test, InvalidPartsBecomeReplacementMarks) {
  EXPECT_EQ(valid_utf8("a\nb\xAEz"), "a\nb\xEF\xBF\xBDz");
  EXPECT_EQ(valid_utf8("\xC3\xA9"), "\xC3\xA9");
}

TEST(Utf8Test, EveryCodePointIsWrittenReadAndValid) {
  for (uint32_t value = 0; value <= 0x10FFFF; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text;
    append_code_point(value, &text);
    ASSERT_EQ(find_invalid_utf8(text), std::string::npos) << value;
    const CodePoint read = read_code_point(text, 0);
    ASSERT_EQ(read.value, value);
    ASSERT_EQ(read.size, text.size());
    ASSERT_EQ(previous_code_point(text, text.size()), 0u);
  }
}

TEST(Utf8Test, SurrogatesAndLongFormsAreInvalid) {
  for (const char* text : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF",
                           "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                           "\xF5\x80\x80\x80", "\xFE", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(text), 0u);
    EXPECT_EQ(classify_utf8(text).kind, Utf8Prefix::Kind::INVALID);
  }
}

TEST(Utf8Test, PrefixesOfCharactersAreIncomplete) {
  const std::string llama = "🦙";
  for (size_t size = 1; size < llama.size(); ++size) {
    const Utf8Prefix prefix = classify_utf8(llama.substr(0, size));
    EXPECT_EQ(prefix.kind, Utf8Prefix::Kind::INCOMPLETE);
    EXPECT_EQ(prefix.size, size);
  }
}

TEST(Utf8Test, LossyTextMarksMaximalParts) {
  const auto lossy = [](std::string_view bytes) {
    std::string text;
    append_lossy_utf8(bytes, &text);
    return text;
  };
  EXPECT_EQ(lossy("abc"), "abc");
  EXPECT_EQ(lossy("a\xF0\x9F\xA6z"), "a\uFFFDz");
  EXPECT_EQ(lossy("\xF0\x9F"), "\uFFFD");
  EXPECT_EQ(lossy("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xC3\xC3\xA9"), "\uFFFDé");
}

TEST(Utf8Test, ReadingMalformedBytesStaysInside) {
  const std::string bytes = "\xF0\x9F\xA6";
  for (size_t position = 0; position < bytes.size(); ++position) {
    const CodePoint read = read_code_point(bytes, position);
    EXPECT_LE(position + read.size, bytes.size());
    EXPECT_LE(read.value, 0x10FFFFu);
  }
}

}  // namespace
}  // namespace pinfer
