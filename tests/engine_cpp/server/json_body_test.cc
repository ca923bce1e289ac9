#include "server/openai/json_body.h"

#include <gtest/gtest.h>

#include "server/api_error.h"

namespace pinfer::server {
namespace {

std::string error_of(const std::string& body, void (*read)(const Fields&)) {
  try {
    const Json json = parse_body(body);
    read(Fields(json));
    return "";
  } catch (const ApiError& error) {
    return error.what();
  }
}

TEST(ParseBody, RefusesWhatIsNoObject) {
  for (const char* body : {"", "{", "[]", "null", "1", "{} x", "{\"a\":\"\xff\"}",
                           "{\"a\":\"\\ud83d\"}", "{\"a\":1e999}", "{'a':1}"}) {
    EXPECT_THROW(parse_body(body), ApiError) << body;
  }
}

TEST(ParseBody, BoundsNesting) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']') + "}";
  };
  EXPECT_NO_THROW(parse_body(nested(255)));
  EXPECT_THROW(parse_body(nested(256)), ApiError);
  EXPECT_THROW(parse_body(nested(1'000'000)), ApiError);
}

TEST(ParseBody, OfEqualKeysTheLastCounts) {
  EXPECT_EQ(parse_body(R"({"a":1,"b":2,"a":3})")["a"], 3);
}

TEST(ParseBody, RefusesIntegersBeyond64Bits) {
  const auto read = [](const Fields&) {};
  EXPECT_EQ(error_of(R"({"a":18446744073709551615,"b":-9223372036854775808})", read), "");
  EXPECT_EQ(error_of(R"({"a":1e30,"b":18446744073709551616.0,"18446744073709551616":"\"9"})", read),
            "");
  EXPECT_EQ(error_of(R"({"a":"\"","b":[18446744073709551616]})", read),
            "b[0]: the integer 18446744073709551616 needs more than 64 bits");
  EXPECT_EQ(error_of(R"({"a":-9223372036854775809})", read),
            "a: the integer -9223372036854775809 needs more than 64 bits");
  EXPECT_EQ(
      error_of(R"([{"a":{},"b":[1,{"c,":"]}","d\"":[[2],[3,99999999999999999999]]}]}])", read),
      "[0].b[1].d\\\"[1][1]: the integer 99999999999999999999 needs more than 64 bits");
  EXPECT_EQ(error_of("{\"a\":1" + std::string(400, '0') + "}", read),
            "a: the integer 1" + std::string(59, '0') + "... needs more than 64 bits");
}

TEST(Fields, NullIsAbsent) {
  const Json json = parse_body(R"({"a":null})");
  const Fields fields(json);
  EXPECT_FALSE(fields.has("a"));
  EXPECT_FALSE(fields.number("a", 0, 1).has_value());
  EXPECT_FALSE(fields.integer("a", 0, 1).has_value());
  EXPECT_FALSE(fields.boolean("a").has_value());
  EXPECT_FALSE(fields.text("a").has_value());
  EXPECT_FALSE(fields.token_ids("a").has_value());
}

TEST(Fields, IntegersAreNothingElse) {
  const auto read = [](const Fields& fields) { (void)fields.integer("n", 1, 10); };
  EXPECT_EQ(error_of(R"({"n":3})", read), "");
  EXPECT_EQ(error_of(R"({"n":"ten"})", read),
            "n: expected an integer from 1 to 10, found a string");
  EXPECT_EQ(error_of(R"({"n":1.5})", read), "n: expected an integer from 1 to 10, found 1.5");
  EXPECT_EQ(error_of(R"({"n":true})", read), "n: expected an integer from 1 to 10, found true");
  EXPECT_EQ(error_of(R"({"n":0})", read), "n: expected an integer from 1 to 10, found 0");
  EXPECT_EQ(error_of(R"({"n":18446744073709551615})", read),
            "n: expected an integer from 1 to 10, found 18446744073709551615");
  EXPECT_NE(error_of(R"({"n":1e2})", read), "");
}

TEST(Fields, NumbersAreInRange) {
  const auto read = [](const Fields& fields) { (void)fields.number("t", 0, 2); };
  EXPECT_EQ(error_of(R"({"t":2})", read), "");
  EXPECT_EQ(error_of(R"({"t":0.5})", read), "");
  EXPECT_EQ(error_of(R"({"t":-0.1})", read), "t: expected a number from 0.0 to 2.0, found -0.1");
  EXPECT_EQ(error_of(R"({"t":[]})", read), "t: expected a number from 0.0 to 2.0, found a list");
}

TEST(Fields, ListsNameTheEntry) {
  const auto ids = [](const Fields& fields) { (void)fields.token_ids("ids"); };
  EXPECT_EQ(error_of(R"({"ids":[1,2]})", ids), "");
  EXPECT_EQ(error_of(R"({"ids":[1,-2]})", ids), "ids[1]: expected a token id, found -2");
  EXPECT_EQ(error_of(R"({"ids":[1,2147483648]})", ids),
            "ids[1]: expected a token id, found 2147483648");
  const auto texts = [](const Fields& fields) { (void)fields.texts("texts"); };
  EXPECT_EQ(error_of(R"({"texts":["a",1]})", texts), "texts[1]: expected a string, found 1");
}

}  // namespace
}  // namespace pinfer::server
