// Templates made to hang, to exhaust memory or the stack, or to reach the edges of arithmetic: each
// ends soon, with a text or with an error.
#include <regex>

#include "template_fixture.h"

namespace pinfer {
namespace {

class HostileTemplateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cases_ = new Json(Json::parse(read_template_data("hostile.json")));
    template_ = load_template(Json::parse(read_template_data("hostile_compiled.json"))).release();
  }
  static void TearDownTestSuite() {
    delete cases_;
    delete template_;
  }

  static RenderInput input_for(const std::string& name) {
    RenderInput input;
    input.messages = one_message();
    input.template_name = name;
    input.limits.max_steps = 10'000'000;  // a fifth of the default: the tests run under sanitizers
    input.limits.max_memory_bytes = size_t{1} << 25;
    return input;
  }

  static Json* cases_;
  static ChatTemplate* template_;
};

Json* HostileTemplateTest::cases_ = nullptr;
ChatTemplate* HostileTemplateTest::template_ = nullptr;

// Empty expectation: it renders. Else: the error matches.
TEST_F(HostileTemplateTest, EndsAsExpected) {
  ASSERT_NE(template_, nullptr);
  ASSERT_GT(cases_->size(), 120u);
  for (const Json& test : *cases_) {
    std::string name = test["name"], expected = test["expect"];
    Result<std::string> text = template_->render(input_for(name));
    if (expected.empty()) {
      EXPECT_TRUE(text.ok()) << name << ": " << text.status().message();
      continue;
    }
    ASSERT_FALSE(text.ok()) << name;
    EXPECT_TRUE(std::regex_search(text.status().message(), std::regex(expected)))
        << name << ": expected " << expected << ", found " << text.status().message();
  }
}

// With little to spend, everything still ends in good order.
TEST_F(HostileTemplateTest, SmallLimitsHold) {
  ASSERT_NE(template_, nullptr);
  int refused = 0;
  for (const Json& test : *cases_) {
    RenderInput input = input_for(test["name"]);
    input.limits.max_steps = 3000;
    input.limits.max_memory_bytes = 20000;
    input.limits.max_output_bytes = 1000;
    Result<std::string> text = template_->render(input);
    refused += text.ok() ? 0 : 1;
    if (text.ok()) {
      EXPECT_LE(text.value().size(), 1000u);
    }
  }
  EXPECT_GT(refused, 50);
}

// Running out at any point leaves nothing behind (run under AddressSanitizer) and names a limit.
TEST_F(HostileTemplateTest, EveryPointOfExhaustionIsClean) {
  ASSERT_NE(template_, nullptr);
  RenderInput input = input_for("all_nodes");
  bool finished = false;
  int steps = 0;
  for (; !finished && steps < 100000; ++steps) {
    input.limits.max_steps = steps;
    Result<std::string> text = template_->render(input);
    finished = text.ok();
    if (!finished) {
      EXPECT_NE(text.status().message().find("steps"), std::string::npos);
    }
  }
  EXPECT_TRUE(finished);
  EXPECT_GT(steps, 300);
}

}  // namespace
}  // namespace pinfer
