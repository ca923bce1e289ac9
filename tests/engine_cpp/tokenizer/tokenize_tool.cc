// A JSON-lines tool for tests: `tokenize_tool TOKENIZER_BIN` answers each line of stdin.
//   {"text": str, "add_special_tokens": bool}        -> {"ids": [int]}
//   {"ids": [int], "skip_special_tokens": bool}      -> {"text": str}
//   {"ids": [int], "stream": true, "prompt_ids": []} -> {"texts": [str]}
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace {

using nlohmann::json;

json answer(const pinfer::Tokenizer& tokenizer, const json& request) {
  if (request.contains("text")) {
    const auto ids = tokenizer.encode(request.at("text").get<std::string>(),
                                      request.value("add_special_tokens", true));
    if (!ids.ok()) return {{"error", ids.status().message()}};
    return {{"ids", ids.value()}};
  }
  const auto ids = request.at("ids").get<std::vector<int32_t>>();
  const bool skip_special_tokens = request.value("skip_special_tokens", true);
  if (request.value("stream", false)) {
    const auto prompt_ids = request.value("prompt_ids", std::vector<int32_t>());
    pinfer::StreamingDetokenizer detokenizer(tokenizer, prompt_ids, skip_special_tokens);
    std::vector<std::string> texts;
    for (const int32_t id : ids) texts.push_back(detokenizer.add(id));
    texts.push_back(detokenizer.finish());
    return {{"texts", texts}};
  }
  const auto text = tokenizer.decode(ids, skip_special_tokens);
  if (!text.ok()) return {{"error", text.status().message()}};
  return {{"text", text.value()}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenize_tool TOKENIZER_BIN\n");
    return 2;
  }
  const auto tokenizer = pinfer::Tokenizer::open(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "error: %s\n", tokenizer.status().message().c_str());
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    json reply;
    try {
      reply = answer(*tokenizer.value(), json::parse(line));
    } catch (const json::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump() << "\n";
  }
  return 0;
}
