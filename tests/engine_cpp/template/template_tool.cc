// template_tool CHAT_TEMPLATE_JSON: renders JSON lines, for the Python tests.
//
// In: {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
//      "chat_template", "chat_template_kwargs", "now" (seconds since 1970)}
// Out: {"text"} or {"error"}, one line for each.
// With --names instead of a file: the names of everything that templates can use.
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

#include "json/wide_integer.h"
#include "template/builtins/registry.h"
#include "template/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

template <typename Entries>
void add_names(Json& list, const Entries& entries) {
  for (const auto& entry : entries) list.push_back(std::string(entry.name));
}

int print_names() {
  using namespace pinfer::jinja;  // NOLINT: this function only lists that namespace
  Json names;
  for (auto group : {text_filters(), number_filters(), sequence_filters(), selection_filters(),
                     order_filters()}) {
    add_names(names["filters"], group);
  }
  add_names(names["tests"], all_tests());
  add_names(names["globals"], global_functions());
  add_names(names["string_methods"], string_methods());
  std::cout << names.dump() << "\n";
  return 0;
}

Json answer(const pinfer::ChatTemplate& chat_template, const std::string& line) {
  if (const auto number = pinfer::find_wide_integer(line)) {
    return {{"error", number->message()}};
  }
  Json request = Json::parse(line, nullptr, false);
  if (!request.is_object()) return {{"error", "expected a JSON object"}};
  pinfer::RenderInput input;
  input.messages = request.value("messages", Json());
  input.tools = request.value("tools", Json());
  input.documents = request.value("documents", Json());
  input.chat_template_kwargs = request.value("chat_template_kwargs", Json());
  if (request.contains("add_generation_prompt")) {
    input.add_generation_prompt = request.value("add_generation_prompt", false);
  }
  input.continue_final_message = request.value("continue_final_message", false);
  input.template_name = request.value("chat_template", "");
  if (request.contains("now")) {
    int64_t microseconds = std::llround(request.value("now", 0.0) * 1e6);
    input.now = std::chrono::system_clock::time_point(std::chrono::microseconds(microseconds));
  }
  pinfer::Result<std::string> text = chat_template.render(input);
  if (!text.ok()) return {{"error", text.status().message()}};
  return {{"text", text.value()}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: template_tool CHAT_TEMPLATE_JSON | --names\n";
    return 2;
  }
  if (std::string(argv[1]) == "--names") return print_names();
  std::ifstream file(argv[1], std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) {
    std::cerr << "template_tool: error: cannot read " << argv[1] << "\n";
    return 1;
  }
  auto chat_template = pinfer::ChatTemplate::from_json(content.str());
  if (!chat_template.ok()) {
    std::cerr << "template_tool: error: " << chat_template.status().message() << "\n";
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout
        << answer(*chat_template.value(), line).dump(-1, ' ', false, Json::error_handler_t::replace)
        << "\n"
        << std::flush;
  }
  return 0;
}
