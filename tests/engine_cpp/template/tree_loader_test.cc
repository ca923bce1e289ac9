// Trees that no exporter wrote: each is refused with a path, or renders without harm.
#include "template/tree/tree_loader.h"

#include "template_fixture.h"

namespace pinfer {
namespace {

std::string load_error(const Json& body, int num_slots = 1) {
  Result<std::unique_ptr<ChatTemplate>> loaded =
      ChatTemplate::from_json(template_of(body, num_slots).dump());
  return loaded.ok() ? "" : loaded.status().message();
}

Json name_node(int hops, int slot) {
  return {{"kind", "name"}, {"line", 1}, {"name", "x"}, {"hops", hops}, {"slot", slot}};
}

TEST(TreeLoaderTest, NamesThePathOfWhatIsWrong) {
  struct Case {
    Json body;
    std::string message;
  };
  Json filter = {{"kind", "filter"},      {"line", 1},
                 {"name", "upper"},       {"node", nullptr},
                 {"args", Json::array()}, {"kwargs", Json::array()},
                 {"dyn_args", nullptr},   {"dyn_kwargs", nullptr}};
  Json unknown_filter = filter;
  unknown_filter["name"] = "no_such";
  const Case cases[] = {
      {1, "root.body: expected a list"},
      {Json::array({1}), "root.body[0]: expected an object, found number"},
      {Json::array({Json::object()}), "root.body[0].kind: expected a value, found nothing"},
      {Json::array({{{"kind", "dance"}, {"line", 1}}}), "root.body[0].kind: expected a statement"},
      {Json::array({{{"kind", "output"}, {"line", -1}, {"nodes", Json::array()}}}),
       "root.body[0].line: expected an integer from 0"},
      {Json::array({output_of({{"kind", "dance"}, {"line", 1}})}),
       "root.body[0].nodes[0].kind: expected an expression, found \"dance\""},
      {Json::array({output_of(name_node(0, 1))}), "slot: expected an integer from 0 to 0, found 1"},
      {Json::array({output_of(name_node(0, -1))}), "slot: expected an integer from 0 to 0"},
      {Json::array({output_of(name_node(1, 0))}), "hops: expected an integer from 0 to 0, found 1"},
      {Json::array({output_of(unknown_filter)}), "name: expected a filter that this version knows"},
      {Json::array({output_of(filter)}), "node: expected an expression, found null"},
      {Json::array({output_of(const_node(Json::array()))}), "value: expected null, a boolean"},
      {Json::array({output_of(const_node(uint64_t{1} << 63))}), "value: expected an integer"},
      {Json::array({{{"kind", "break"}, {"line", 1}}}), "no break or continue outside a loop"},
  };
  for (const Case& test : cases) {
    std::string message = load_error(test.body);
    EXPECT_NE(message.find(test.message), std::string::npos) << message << "\n" << test.message;
  }
}

TEST(TreeLoaderTest, RefusesTooManyVariablesAndTooMuchDepth) {
  EXPECT_NE(load_error(Json::array(), 200000).find("slots"), std::string::npos);
  Json node = const_node(1);
  for (int i = 0; i < jinja::kMaxTreeDepth - 3; ++i) {
    node = {{"kind", "not"}, {"line", 1}, {"node", std::move(node)}};
  }
  EXPECT_EQ(load_error(Json::array({output_of(node)})), "");
  for (int i = 0; i < 10; ++i) node = {{"kind", "not"}, {"line", 1}, {"node", std::move(node)}};
  EXPECT_NE(load_error(Json::array({output_of(node)})).find("nested more than 600"),
            std::string::npos);
}

// Every value of a tree with all kinds of nodes is replaced, removed or swapped in turn.
class TreeMutationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Json all = Json::parse(read_template_data("hostile_compiled.json"));
    for (const Json& entry : all["templates"]) {
      if (entry["name"] == "all_nodes") root_ = entry["root"];
    }
    ASSERT_TRUE(root_.is_object());
    collect(root_, Json::json_pointer());
  }

  void collect(const Json& json, const Json::json_pointer& path) {
    if (!path.empty()) paths_.push_back(path);
    if (!json.is_structured()) return;
    for (auto& [key, value] : json.items()) {
      collect(value, json.is_array() ? path / static_cast<size_t>(std::stoul(key)) : path / key);
    }
  }

  // Loads, and renders what loads. True if it loaded.
  static bool survives(const Json& root) {
    Json json = template_of(Json::array());
    json["templates"][0]["root"] = root;
    Result<std::unique_ptr<ChatTemplate>> loaded = ChatTemplate::from_json(json.dump());
    if (!loaded.ok()) {
      EXPECT_FALSE(loaded.status().message().empty());
      return false;
    }
    RenderInput input;
    input.messages = one_message();
    input.limits.max_steps = 20000;
    Result<std::string> text = loaded.value()->render(input);
    EXPECT_TRUE(text.ok() || !text.status().message().empty());
    return true;
  }

  Json root_;
  std::vector<Json::json_pointer> paths_;
};

TEST_F(TreeMutationTest, EveryReplacementIsRefusedOrHarmless) {
  ASSERT_TRUE(survives(root_));
  ASSERT_GT(paths_.size(), 900u);
  const Json replacements[] = {nullptr,        0,    -1, 1 << 30, 3, "x", Json::array(),
                               Json::object(), true, 1.5};
  size_t loaded = 0, refused = 0;
  for (size_t i = 0; i < paths_.size(); ++i) {
    // One replacement for each place, another one for its neighbour.
    Json mutated = root_;
    mutated[paths_[i]] = replacements[i % std::size(replacements)];
    (survives(mutated) ? loaded : refused) += 1;
  }
  EXPECT_GT(loaded, 20u);
  EXPECT_GT(refused, 500u);
}

TEST_F(TreeMutationTest, EveryRemovalIsRefusedOrHarmless) {
  size_t refused = 0;
  for (const Json::json_pointer& path : paths_) {
    Json mutated = root_;
    Json& parent = mutated[path.parent_pointer()];
    if (parent.is_array()) {
      parent.erase(static_cast<size_t>(std::stoul(path.back())));
    } else {
      parent.erase(path.back());
    }
    refused += survives(mutated) ? 0 : 1;
  }
  EXPECT_GT(refused, 500u);
}

TEST_F(TreeMutationTest, NodesInPlaceOfOthersAreRefusedOrHarmless) {
  std::vector<Json> nodes;
  for (const Json::json_pointer& path : paths_) {
    const Json& json = root_[path];
    if (json.is_object() && json.contains("kind")) nodes.push_back(json);
  }
  size_t loaded = 0, next = 0;
  for (const Json::json_pointer& path : paths_) {
    if (!root_[path].is_object()) continue;
    for (int i = 0; i < 3; ++i) {
      Json mutated = root_;
      next = (next + 7) % nodes.size();
      mutated[path] = nodes[next];
      loaded += survives(mutated) ? 1 : 0;
    }
  }
  EXPECT_GT(loaded, 50u);
}

}  // namespace
}  // namespace pinfer
