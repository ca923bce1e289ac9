// The endpoints without sockets and without a model: what is read, and what is refused.
#include <gtest/gtest.h>

#include "fake_exchange.h"

namespace pinfer::server {
namespace {

class Endpoints : public testing::Test {
 protected:
  // "status param message", or "status" of an answer.
  std::string ask(const std::string& path, const std::string& body) {
    const auto exchange = endpoints_->ask(path, body);
    EXPECT_EQ(exchange->num_answers, 1);
    const HttpResponse& response = exchange->response.value();
    const auto json = nlohmann::json::parse(response.body);
    std::string text = std::to_string(response.status);
    if (response.status == 200) return text;
    const auto& error = json.at("error");
    text += " " + (error["param"].is_null() ? "-" : error["param"].get<std::string>());
    return text + " " + error["message"].get<std::string>();
  }

  static void SetUpTestSuite() { endpoints_ = new TextEndpoints(); }
  static void TearDownTestSuite() { delete endpoints_; }
  static TextEndpoints* endpoints_;
};

TextEndpoints* Endpoints::endpoints_ = nullptr;

TEST_F(Endpoints, TokenizeAndBack) {
  const auto tokenized = endpoints_->ask("/tokenize", R"({"prompt":"Hi"})");
  const auto json = nlohmann::json::parse(tokenized->response->body);
  EXPECT_EQ(json["count"], json["tokens"].size());
  EXPECT_EQ(json["max_model_len"], 128);
  const auto text =
      endpoints_->ask("/detokenize", nlohmann::json{{"tokens", json["tokens"]}}.dump());
  EXPECT_EQ(nlohmann::json::parse(text->response->body)["prompt"], "Hi");
}

TEST_F(Endpoints, AGoodRequestReachesTheEngine) {
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":"Hi"})").substr(0, 3), "503");
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":["Hi","Ho"],"n":2,"stream":true})").substr(0, 3),
            "503");
}

TEST_F(Endpoints, RefusalsNameTheField) {
  EXPECT_EQ(ask("/v1/completions", "{}").substr(0, 10), "400 prompt");
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":["a",1]})").substr(0, 13), "400 prompt[1]");
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":"a","model":"x"})").substr(0, 9), "404 model");
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":"a","stop":["x",""]})").substr(0, 8), "400 stop");
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":"a","stream_options":{}})").substr(0, 18),
            "400 stream_options");
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":"a","logit_bias":{"x":1}})").substr(0, 14),
            "400 logit_bias");
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":"a","max_tokens":0})").substr(0, 14),
            "400 max_tokens");
  EXPECT_EQ(ask("/v1/chat/completions", R"({"messages":[{"content":"a"}]})").substr(0, 20),
            "400 messages[0].role");
  EXPECT_EQ(ask("/v1/chat/completions", R"({"messages":[]})").substr(0, 12), "400 messages");
  EXPECT_EQ(ask("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":1})")
                .substr(0, 16),
            "400 top_logprobs");
  EXPECT_EQ(ask("/detokenize", R"({"tokens":[99999999]})").substr(0, 3), "400");
}

}  // namespace
}  // namespace pinfer::server
