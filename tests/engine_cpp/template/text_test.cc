// Text and numbers as Python sees them, for what templates cannot reach or reach rarely.
#include <gtest/gtest.h>

#include <cmath>

#include "template/text/number_text.h"
#include "template/text/python_text.h"
#include "template/text/strftime.h"
#include "template/text/unicode.h"
#include "template/text/utf8.h"

namespace pinfer::jinja {
namespace {

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(utf8_error(""), std::nullopt);
  EXPECT_EQ(utf8_error("aé天\U0001F600"), std::nullopt);
  EXPECT_EQ(utf8_error("\xEF\xBF\xBF\xF4\x8F\xBF\xBF"), std::nullopt);
  EXPECT_EQ(utf8_error("ab\xff"), 2u);
  EXPECT_EQ(utf8_error("a\x80"), 1u);             // continuation alone
  EXPECT_EQ(utf8_error("\xC3"), 0u);              // cut
  EXPECT_EQ(utf8_error("a\xE5\xA4"), 1u);         // cut
  EXPECT_EQ(utf8_error("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(utf8_error("\xE0\x80\x80"), 0u);      // overlong
  EXPECT_EQ(utf8_error("\xF0\x80\x80\x80"), 0u);  // overlong
  EXPECT_EQ(utf8_error("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(utf8_error("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(utf8_error("\xF8\x88\x80\x80\x80"), 0u);
}

TEST(Utf8Test, GoesThroughCharacters) {
  std::string text = "aé天\U0001F600";
  EXPECT_EQ(utf8_length(text), 4);
  EXPECT_EQ(from_code_points(to_code_points(text)), text);
  EXPECT_EQ(to_code_points(text), U"aé天\U0001F600");
  EXPECT_EQ(utf8_offset(text, 2), 3u);
  EXPECT_EQ(utf8_offset(text, 99), text.size());
  EXPECT_EQ(utf8_previous(text, text.size()), 6u);
}

TEST(NumberTextTest, FloatReprIsPythons) {
  const std::pair<double, const char*> cases[] = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {0.1, "0.1"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {123456789012345678.0, "1.2345678901234568e+17"},
      {1e22, "1e+22"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {1.5e-7, "1.5e-07"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {100.25, "100.25"},
      {-2.5e-10, "-2.5e-10"},
      {HUGE_VAL, "inf"},
      {-HUGE_VAL, "-inf"},
      {std::nan(""), "nan"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(float_repr(value), text);
}

TEST(NumberTextTest, RoundsTheExactValue) {
  EXPECT_EQ(round_float(2.5, 0), 2.0);
  EXPECT_EQ(round_float(3.5, 0), 4.0);
  EXPECT_EQ(round_float(2.675, 2), 2.67);  // the double lies below
  EXPECT_EQ(round_float(1234.5, -2), 1200.0);
  EXPECT_EQ(round_float(1e308, 300), 1e308);
  EXPECT_EQ(round_float(5.0, -400), 0.0);
}

TEST(NumberTextTest, ReadsIntegers) {
  EXPECT_EQ(parse_int(" -42\n", 10).value, -42);
  EXPECT_EQ(parse_int("1_000", 10).value, 1000);
  EXPECT_EQ(parse_int("0x1F", 16).value, 31);
  EXPECT_EQ(parse_int("0b_101", 0).value, 5);
  EXPECT_EQ(parse_int("٤٢", 10).value, 42);
  EXPECT_EQ(parse_int("-9223372036854775808", 10).value, INT64_MIN);
  for (const char* text : {"", "-", "1__0", "_1", "1_", "0x", "1.5", "a", "4 2", "012 ", "²"}) {
    EXPECT_EQ(parse_int(text, 0).value, std::nullopt) << text;
  }
  EXPECT_EQ(parse_int("9223372036854775808", 10).error, IntError::TOO_LARGE);
}

TEST(NumberTextTest, ReadsFloats) {
  EXPECT_EQ(parse_float(" 1.5e3 "), 1500.0);
  EXPECT_EQ(parse_float(".5"), 0.5);
  EXPECT_EQ(parse_float("5."), 5.0);
  EXPECT_EQ(parse_float("1e999"), HUGE_VAL);
  EXPECT_EQ(parse_float("-1e-999"), 0.0);
  EXPECT_EQ(parse_float("-Infinity"), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(*parse_float("NaN")));
  for (const char* text : {"", ".", "1e", "0x1p3", "1,5", "e5", "++1", "in"}) {
    EXPECT_EQ(parse_float(text), std::nullopt) << text;
  }
}

TEST(PythonTextTest, FindsInLinearTime) {
  std::string text(4'000'000, 'a');
  std::string part = std::string(2'000'000, 'a') + "b";
  EXPECT_EQ(find_text(text, part), std::string_view::npos);
  EXPECT_EQ(rfind_text(text, "b" + std::string(2'000'000, 'a')), std::string_view::npos);
  EXPECT_EQ(find_text("abc", "", 1), 1u);
  EXPECT_EQ(find_text("abc", "c", 9), std::string_view::npos);
  EXPECT_EQ(rfind_text("abcabc", "abc"), 3u);
  EXPECT_EQ(rfind_text(std::string(20, 'x') + "y" + std::string(20, 'x'), std::string(20, 'x')),
            21u);
}

TEST(PythonTextTest, EmptyTexts) {
  EXPECT_EQ(split_whitespace("  ", -1).size(), 0u);
  EXPECT_EQ(rsplit_whitespace("", 3).size(), 0u);
  EXPECT_EQ(split("", ",", -1).size(), 1u);
  EXPECT_EQ(split_lines("", false).size(), 0u);
  EXPECT_EQ(replace("", "", "x", -1), "x");
  EXPECT_EQ(strip(" \u3000 "), "");
  EXPECT_EQ(slice("", 0, 0, 1), "");
  EXPECT_EQ(reverse(""), "");
}

TEST(UnicodeTest, CaseOfWholeStrings) {
  EXPECT_EQ(to_lower("ΑΣ ΣΑ ΑΣ.Α"), "ας σα ασ.α");
  EXPECT_EQ(to_upper("straße ŉ ﬁ"), "STRASSE ʼN FI");
  EXPECT_EQ(to_title("o'neil ǆ"), "O'Neil ǅ");
  EXPECT_EQ(capitalize("ÉCOLE"), "École");
  EXPECT_EQ(swap_case("aÉß"), "AéSS");
  EXPECT_EQ(decimal_value(U'७'), 7);
  EXPECT_EQ(decimal_value(U'½'), -1);
}

TEST(StrftimeTest, EnglishNamesAndPythonsCodes) {
  std::chrono::system_clock::time_point time{std::chrono::microseconds(1'721'952'000'000'042)};
  EXPECT_EQ(format_local_time(time, "%f"), "000042");
  EXPECT_EQ(format_local_time(time, "%z|%Z"), "|");
  EXPECT_EQ(format_local_time(time, ""), "");
  EXPECT_EQ(format_local_time(time, "%B %Y 年").substr(0, 9), "July 2024");
  EXPECT_EQ(format_local_time(time, "%%"), "%");
}

}  // namespace
}  // namespace pinfer::jinja
