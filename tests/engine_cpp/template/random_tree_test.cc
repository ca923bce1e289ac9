// Many random templates: whatever they do, rendering ends with a text or an error.
#include "random_tree.h"

#include <random>

namespace pinfer {
namespace {

TEST(RandomTreeTest, RenderingAlwaysEnds) {
  std::mt19937 random(20240726);
  auto next_byte = [&] { return static_cast<uint8_t>(random()); };
  int texts = 0, errors = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string json = RandomTree(next_byte).chat_template().dump();
    Result<std::unique_ptr<ChatTemplate>> loaded = ChatTemplate::from_json(json);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message() << "\n" << json;
    RenderInput input;
    input.messages = Json::parse(R"([{"role": "user", "content": "Hi é", "n": [1, 2.5, null]},
                                     {"role": "assistant", "content": "a,b", "o": {"a": {}}}])");
    input.limits.max_steps = 20000;
    input.limits.max_memory_bytes = size_t{1} << 22;
    input.limits.max_output_bytes = size_t{1} << 20;
    Result<std::string> text = loaded.value()->render(input);
    (text.ok() ? texts : errors) += 1;
    if (!text.ok()) {
      ASSERT_EQ(text.status().code(), StatusCode::INVALID_ARGUMENT) << json;
    }
  }
  EXPECT_GT(texts, 0);  // most random templates use something the wrong way
  EXPECT_GT(errors, 100);
}

}  // namespace
}  // namespace pinfer
