// Compiled templates for tests, and rendering them in one call.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "template/chat_template.h"

namespace pinfer {

using Json = nlohmann::ordered_json;

inline std::string read_template_data(const std::string& name) {
  std::ifstream file(std::string(PINFER_TEST_DIR) + "/data/chat_templates/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::unique_ptr<ChatTemplate> load_template(const Json& json) {
  Result<std::unique_ptr<ChatTemplate>> loaded = ChatTemplate::from_json(json.dump());
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? loaded.take() : nullptr;
}

inline Json one_message() { return Json::array({{{"role", "user"}, {"content", "Hi"}}}); }

// A chat_template.json with one template of these statements and `num_slots` variables; slot 0 is
// `messages`.
inline Json template_of(Json body, int num_slots = 1) {
  Json enter = Json::array({{{"load", "resolve"}, {"slot", 0}, {"name", "messages"}}});
  Json root = {{"slots", num_slots}, {"enter", enter}, {"body", std::move(body)}};
  Json entry = {{"name", "default"},
                {"source", "content"},
                {"content_parts", {{"user", false}}},
                {"root", std::move(root)}};
  return {{"format_version", 1},
          {"special_tokens", {{"bos_token", "<s>"}}},
          {"templates", Json::array({std::move(entry)})}};
}

inline Json const_node(Json value) {
  return {{"kind", "const"}, {"line", 1}, {"value", std::move(value)}};
}

inline Json output_of(Json expression) {
  return {{"kind", "output"}, {"line", 1}, {"nodes", Json::array({std::move(expression)})}};
}

}  // namespace pinfer
