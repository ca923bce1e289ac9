#include "tokenizer/stop_string_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace pinfer {
namespace {

struct Outcome {
  std::vector<std::string> texts;  // by piece of text, then what finish() gave
  std::string joined;
  std::optional<size_t> matched;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
            bool include_stop = false) {
  StopStringMatcher matcher(stops, include_stop);
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.texts.push_back(matcher.add(piece));
  outcome.texts.push_back(matcher.finish());
  for (const std::string& text : outcome.texts) outcome.joined += text;
  outcome.matched = matcher.matched();
  return outcome;
}

const std::vector<std::string> kPieces = {"ABC", "DEF", "G", "HI", "JK"};

TEST(StopStringMatcherTest, FindsMatchesOverBorders) {
  EXPECT_EQ(run({"DEFGHIJ"}, kPieces).joined, "ABC");
  EXPECT_EQ(run({"CD"}, kPieces).joined, "AB");
  EXPECT_EQ(run({"K"}, kPieces).joined, "ABCDEFGHIJ");
  EXPECT_EQ(run({"A"}, kPieces).joined, "");
  EXPECT_EQ(run({"KL"}, kPieces).joined, "ABCDEFGHIJK");
  EXPECT_EQ(run({"KL"}, kPieces).matched, std::nullopt);
}

TEST(StopStringMatcherTest, TheMatchThatIsCompleteFirstWins) {
  const Outcome outcome = run({"GHIJK", "HI"}, kPieces);
  EXPECT_EQ(outcome.joined, "ABCDEFG");
  EXPECT_EQ(outcome.matched, 1u);
  EXPECT_EQ(run({"I", "HI"}, kPieces).joined, "ABCDEFG");  // both end there: the longer one
  EXPECT_EQ(run({"GHIJK", "HI"}, {"ABCDEFGHIJK"}).joined, "ABCDEFG");
}

TEST(StopStringMatcherTest, HoldsBackOnlyWhatCouldStillMatch) {
  EXPECT_EQ(run({"DEFGHIJ"}, {"ABC", "DEF", "G", "X"}).texts,
            std::vector<std::string>({"ABC", "", "", "DEFGX", ""}));
  EXPECT_EQ(run({"aab"}, {"aa", "aa", "c"}).texts, std::vector<std::string>({"", "aa", "aac", ""}));
  EXPECT_EQ(run({"xyz"}, {"ab", "x", "y"}).texts, std::vector<std::string>({"ab", "", "", "xy"}));
}

TEST(StopStringMatcherTest, StopStringsOfSeveralBytes) {
  EXPECT_EQ(run({"é"}, {"caf", "\xC3", "\xA9", "s"}).joined, "caf");
  EXPECT_EQ(run({"é"}, {"caf", "è", "s"}).joined, "cafès");
}

TEST(StopStringMatcherTest, NothingFollowsAMatch) {
  StopStringMatcher matcher({"stop"});
  EXPECT_EQ(matcher.add("a stop b"), "a ");
  EXPECT_EQ(matcher.add("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopStringMatcherTest, TheStopStringStaysIfAsked) {
  EXPECT_EQ(run({"CD"}, kPieces, true).joined, "ABCD");
}

TEST(StopStringMatcherTest, EmptyStopStringsAreIgnored) {
  EXPECT_EQ(run({}, kPieces).texts, std::vector<std::string>({"ABC", "DEF", "G", "HI", "JK", ""}));
  EXPECT_EQ(run({"", "D"}, kPieces).joined, "ABC");
  EXPECT_EQ(run({""}, kPieces).joined, "ABCDEFGHIJK");
}

TEST(StopStringMatcherTest, EqualsASearchOfTheWholeText) {
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += static_cast<char>('a' + random() % 2);
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) {
      for (unsigned i = 1 + random() % 6; i > 0; --i) stop += static_cast<char>('a' + random() % 2);
    }
    size_t end = std::string::npos, begin = text.size();
    for (const std::string& stop : stops) {
      const size_t found = text.find(stop);
      if (found == std::string::npos) continue;
      const size_t found_end = found + stop.size();
      if (found_end < end || (found_end == end && found < begin)) {
        end = found_end;
        begin = found;
      }
    }
    std::vector<std::string> pieces;
    for (size_t i = 0; i < text.size();) {
      const size_t size = 1 + random() % 4;
      pieces.push_back(text.substr(i, size));
      i += size;
    }
    EXPECT_EQ(run(stops, pieces).joined, text.substr(0, begin)) << text;
  }
}

TEST(StopStringMatcherTest, EarlyMatchesAreText) {
  StopStringMatcher matcher({"ab"});
  EXPECT_EQ(matcher.add("xaba", false), "xab");  // the last letter may begin another
  EXPECT_EQ(matcher.add("b", true), "");
  EXPECT_TRUE(matcher.matched().has_value());
  EXPECT_EQ(matcher.finish(), "");
}

}  // namespace
}  // namespace pinfer
