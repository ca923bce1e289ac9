// libFuzzer: the first byte chooses what the others are: a chat_template.json, a request to a
// template that uses every kind of node, or the choices that make a random template.
#include <cstdlib>
#include <string_view>

#include "random_tree.h"

namespace {

using pinfer::ChatTemplate;
using pinfer::Json;

pinfer::RenderInput small_input() {
  pinfer::RenderInput input;
  input.messages = pinfer::one_message();
  input.limits.max_steps = 20000;
  input.limits.max_memory_bytes = size_t{1} << 22;
  input.limits.max_output_bytes = size_t{1} << 20;
  return input;
}

void fuzz_file(std::string_view text) {
  auto loaded = ChatTemplate::from_json(text);
  if (loaded.ok()) (void)loaded.value()->render(small_input()).ok();
}

void fuzz_request(std::string_view text) {
  static const auto chat_template =
      ChatTemplate::from_json(pinfer::read_template_data("hostile_compiled.json"));
  if (!chat_template.ok()) std::abort();
  Json request = Json::parse(text, nullptr, false);
  if (!request.is_object()) return;
  pinfer::RenderInput input = small_input();
  input.template_name = "all_nodes";
  input.messages = request.value("messages", input.messages);
  input.tools = request.value("tools", Json());
  input.chat_template_kwargs = request.value("chat_template_kwargs", Json());
  input.continue_final_message = request.contains("continue_final_message");
  (void)pinfer::parse_tool_call_arguments(input.messages).ok();
  (void)chat_template.value()->render(input).ok();
}

void fuzz_tree(std::string_view bytes) {
  auto next_byte = [&]() -> uint8_t {
    if (bytes.empty()) return 0;
    uint8_t byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    return byte;
  };
  auto loaded = ChatTemplate::from_json(pinfer::RandomTree(next_byte).chat_template().dump());
  if (!loaded.ok()) std::abort();  // what RandomTree makes is valid
  (void)loaded.value()->render(small_input()).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      fuzz_file(rest);
      break;
    case 1:
      fuzz_request(rest);
      break;
    default:
      fuzz_tree(rest);
  }
  return 0;
}
