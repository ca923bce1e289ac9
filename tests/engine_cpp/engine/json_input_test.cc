#include "engine/json_input.h"

#include <gtest/gtest.h>

#include <string>

namespace pinfer {
namespace {

TEST(ParseJson, KeepsTheOrderOfKeys) {
  const auto json = parse_json(R"({"b": 1, "a": [true, null]})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json.value().dump(), R"({"b":1,"a":[true,null]})");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\":1} x", "\xef\xbb\xbf\xef{}", "\"\xff\"", "nan"}) {
    const auto json = parse_json(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_NE(json.status().message().find("at byte"), std::string::npos);
  }
}

TEST(ParseJson, LimitsNesting) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)).ok());
  EXPECT_FALSE(parse_json(nested(kMaxJsonDepth + 2)).ok());
  EXPECT_FALSE(parse_json(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace pinfer
