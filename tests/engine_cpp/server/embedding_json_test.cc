#include "server/openai/embedding_json.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "json/float_list.h"

namespace pinfer::server {
namespace {

TEST(EmbeddingJson, Base64IsThatOfTheBytes) {
  EXPECT_EQ(base64_floats({}), "");
  EXPECT_EQ(base64_floats(std::vector<float>{1.0F}), "AACAPw==");
  EXPECT_EQ(base64_floats(std::vector<float>{1.0F, -2.5F}), "AACAPwAAIMA=");
  EXPECT_EQ(base64_floats(std::vector<float>{1.0F, -2.5F, 0.1F}), "AACAPwAAIMDNzMw9");
}

TEST(EmbeddingJson, FloatsAreAsShortAsTheyCanBe) {
  const std::vector<float> values = {0.1F, -0.3F, 1e-20F, 0.0F, 16777216.0F, 0.12345679F};
  const nlohmann::ordered_json list = float_list(values);
  EXPECT_EQ(list.dump(), "[0.1,-0.3,1e-20,0.0,16777216.0,0.12345679]");
  const auto read = nlohmann::ordered_json::parse(list.dump());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(read[i].get<float>(), values[i]) << i;
}

}  // namespace
}  // namespace pinfer::server
