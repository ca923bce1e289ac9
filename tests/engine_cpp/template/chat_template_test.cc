#include <thread>

#include "template_fixture.h"

namespace pinfer {
namespace {

TEST(ChatTemplateTest, RendersConstantsAndMessages) {
  Json content = {
      {"kind", "getattr"},
      {"line", 1},
      {"name", "content"},
      {"node",
       {{"kind", "getitem"},
        {"line", 1},
        {"node", {{"kind", "name"}, {"line", 1}, {"name", "messages"}, {"hops", 0}, {"slot", 0}}},
        {"index", const_node(0)}}}};
  auto chat_template =
      load_template(template_of(Json::array({output_of(const_node("<|")), output_of(content)})));
  ASSERT_NE(chat_template, nullptr);
  RenderInput input;
  input.messages = one_message();
  Result<std::string> text = chat_template->render(input);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(), "<|Hi");
  EXPECT_TRUE(chat_template->has("default"));
  EXPECT_FALSE(chat_template->has("tool_use"));
  EXPECT_EQ(chat_template->names(), std::vector<std::string>{"default"});
}

TEST(ChatTemplateTest, RefusesWhatIsNotATemplateFile) {
  Json valid = template_of(Json::array());
  Json other_version = valid;
  other_version["format_version"] = 2;
  Json no_templates = valid;
  no_templates["templates"] = Json::array();
  Json twice = valid;
  twice["templates"].push_back(valid["templates"][0]);
  struct Case {
    std::string text;
    StatusCode code;
    std::string message;
  };
  const Case cases[] = {
      {"", StatusCode::DATA_LOSS, "expected JSON"},
      {"{", StatusCode::DATA_LOSS, "expected JSON"},
      {"[]", StatusCode::DATA_LOSS, "expected an object, found array"},
      {"{}", StatusCode::FAILED_PRECONDITION, "format_version: expected 1, found nothing"},
      {"{\"format_version\": 1}", StatusCode::DATA_LOSS, "special_tokens"},
      {"{\"a\": \"\xff\"}", StatusCode::DATA_LOSS, "expected JSON"},
      {other_version.dump(), StatusCode::FAILED_PRECONDITION, "expected 1, found 2"},
      {no_templates.dump(), StatusCode::DATA_LOSS, "at least one template"},
      {twice.dump(), StatusCode::DATA_LOSS, "'default' occurs twice"},
      {std::string(200000, '['), StatusCode::DATA_LOSS, "expected JSON"},
      {std::string(200000, '[') + std::string(200000, ']'), StatusCode::DATA_LOSS, "found array"},
  };
  for (const Case& test : cases) {
    Result<std::unique_ptr<ChatTemplate>> loaded = ChatTemplate::from_json(test.text);
    ASSERT_FALSE(loaded.ok()) << test.text.substr(0, 80);
    EXPECT_EQ(loaded.status().code(), test.code) << test.text.substr(0, 80);
    EXPECT_NE(loaded.status().message().find(test.message), std::string::npos)
        << loaded.status().message();
    EXPECT_EQ(loaded.status().message().rfind("chat_template.json: ", 0), 0u);
  }
}

TEST(ChatTemplateTest, BadInputIsNamedByField) {
  auto chat_template = load_template(template_of(Json::array()));
  ASSERT_NE(chat_template, nullptr);
  RenderInput good;
  good.messages = one_message();
  auto message_of = [&](const RenderInput& input) {
    Result<std::string> text = chat_template->render(input);
    EXPECT_FALSE(text.ok());
    EXPECT_EQ(text.status().code(), StatusCode::INVALID_ARGUMENT);
    return text.status().message();
  };
  RenderInput input = good;
  input.messages[0]["content"] = "\xff";
  EXPECT_EQ(message_of(input), "a text of the request is not valid UTF-8 at byte 0");
  input = good;
  input.messages[0]["n"] = uint64_t{1} << 63;
  EXPECT_EQ(message_of(input), "the integer 9223372036854775808 needs more than 64 bits");
  input = good;
  for (int i = 0; i < 300; ++i) input.messages[0]["n"] = Json::array({input.messages[0]["n"]});
  EXPECT_EQ(message_of(input), "the request is nested more than 256 levels deep");
  input = good;
  input.messages[0]["b"] = Json::binary({1, 2});
  EXPECT_EQ(message_of(input), "the request holds binary data");
  input = good;
  input.template_name = "rag";
  EXPECT_EQ(message_of(input), "chat_template: expected one of default, found rag");
}

TEST(ChatTemplateTest, ManyThreadsRenderAtOnce) {
  auto chat_template = load_template(Json::parse(read_template_data("hostile_compiled.json")));
  ASSERT_NE(chat_template, nullptr);
  RenderInput input;
  input.messages = one_message();
  input.template_name = "all_nodes";
  Result<std::string> expected = chat_template->render(input);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        Result<std::string> text = chat_template->render(input);
        EXPECT_TRUE(text.ok() && text.value() == expected.value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Json call_with(Json arguments) {
  Json function = {{"name", "f"}, {"arguments", std::move(arguments)}};
  Json call = {{"id", "1"}, {"function", std::move(function)}};
  return Json::array({{{"role", "assistant"}, {"tool_calls", Json::array({std::move(call)})}}});
}

TEST(ToolCallArgumentsTest, TextBecomesObjects) {
  Json messages = call_with(R"({"z": 1, "a": [2.5]})");
  ASSERT_TRUE(parse_tool_call_arguments(messages).ok());
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"].dump(), R"({"z":1,"a":[2.5]})");
  messages = call_with("");
  ASSERT_TRUE(parse_tool_call_arguments(messages).ok());
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"].dump(), "{}");
  messages = call_with({{"a", 1}});  // an object already
  ASSERT_TRUE(parse_tool_call_arguments(messages).ok());
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"].dump(), R"({"a":1})");
}

TEST(ToolCallArgumentsTest, BadTextIsNamedByPath) {
  Json messages = call_with("{no json");
  Status status = parse_tool_call_arguments(messages);
  EXPECT_EQ(status.code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.message(),
            "messages[0].tool_calls[0].function.arguments: expected JSON, found something else");
  messages = call_with(R"({"n":-9223372036854775809})");
  status = parse_tool_call_arguments(messages);
  EXPECT_EQ(status.message(),
            "messages[0].tool_calls[0].function.arguments: n: the integer -9223372036854775809 "
            "needs more than 64 bits");
  messages = call_with(std::string(300, '[') + std::string(300, ']'));
  status = parse_tool_call_arguments(messages);
  EXPECT_EQ(status.code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.message().find("at most 256 levels"), std::string::npos);
}

TEST(ToolCallArgumentsTest, OtherShapesAreLeftAlone) {
  for (const char* text : {"null", "{}", "[1]", R"([{"tool_calls": 1}])",
                           R"([{"tool_calls": [1]}])", R"([{"tool_calls": [{"function": []}]}])"}) {
    Json messages = Json::parse(text);
    EXPECT_TRUE(parse_tool_call_arguments(messages).ok());
    EXPECT_EQ(messages, Json::parse(text));
  }
}

}  // namespace
}  // namespace pinfer
