#include "server/api_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pinfer/pinfer.hpp"

namespace pinfer::server {
namespace {

nlohmann::json error_of(const ApiError& error) {
  return nlohmann::json::parse(error.response().body).at("error");
}

TEST(ApiError, SaysWhatIsWrongAndWhere) {
  const auto error = error_of(ApiError(400, "n: too many", "n", "code"));
  EXPECT_EQ(error["message"], "n: too many");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "n");
  EXPECT_EQ(error["code"], "code");
  EXPECT_TRUE(error_of(ApiError(400, "text"))["param"].is_null());
}

TEST(ApiError, StaysSmallAndIsText) {
  EXPECT_LT(ApiError(400, std::string(1 << 20, 'x')).body().size(), 1000u);
  // Cut between characters.
  std::string text = "x";
  for (int i = 0; i < 1000; ++i) text += "é";
  const std::string message = error_of(ApiError(400, text))["message"];
  EXPECT_EQ(message.find("\uFFFD"), std::string::npos);
  EXPECT_NO_THROW(error_of(ApiError(400, "\xff\xfe")));
}

TEST(ApiError, HeadersOfItsStatus) {
  const auto header = [](int status) {
    const HttpResponse response = ApiError(status, "text").response();
    return response.headers.empty() ? "" : response.headers[0].first;
  };
  EXPECT_EQ(header(503), "Retry-After");
  EXPECT_EQ(header(401), "WWW-Authenticate");
  EXPECT_EQ(header(400), "");
}

TEST(ApiError, FromTheEngine) {
  const ApiError context = from_engine_error(
      Error(PINFER_INVALID_ARGUMENT, "context_length_exceeded: the prompt has 9 tokens"), "prompt");
  EXPECT_EQ(context.status(), 400);
  EXPECT_EQ(error_of(context)["code"], "context_length_exceeded");
  EXPECT_EQ(error_of(context)["param"], "prompt");
  EXPECT_EQ(error_of(context)["message"], "the prompt has 9 tokens");
  const ApiError path = from_engine_error(
      Error(PINFER_INVALID_ARGUMENT, "messages[0].content[1].type: expected text"), "messages");
  EXPECT_EQ(error_of(path)["param"], "messages[0].content[1].type");
  const ApiError raised =
      from_engine_error(Error(PINFER_INVALID_ARGUMENT, "No system role: sorry"), "messages");
  EXPECT_EQ(error_of(raised)["param"], "messages");
  EXPECT_EQ(from_engine_error(Error(PINFER_RESOURCE_EXHAUSTED, "full"), "").status(), 503);
  EXPECT_EQ(from_engine_error(Error(PINFER_INTERNAL, "bug"), "").status(), 500);
  EXPECT_EQ(from_engine_error(std::runtime_error("other"), "").status(), 500);
  EXPECT_EQ(from_engine_error(ApiError(404, "model"), "").status(), 404);
}

}  // namespace
}  // namespace pinfer::server
