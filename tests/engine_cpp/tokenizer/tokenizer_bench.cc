// Rates of the engine's tokenizer, for tests/bench/tokenizer_bench.py:
// `tokenizer_bench TOKENIZER_BIN TEXT_FILE ROUNDS` prints one JSON object with the seconds of each
// round. A text is a line of the file, its end included, 32 lines at a time.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::string> read_texts(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> texts;
  std::string line;
  for (int lines = 0; std::getline(file, line); ++lines) {
    if (lines % 32 == 0) texts.emplace_back();
    texts.back() += line + "\n";
  }
  return texts;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER_BIN TEXT_FILE ROUNDS\n");
    return 2;
  }
  const std::vector<std::string> texts = read_texts(argv[2]);
  const int rounds = std::atoi(argv[3]);
  std::vector<double> open_seconds, encode_seconds, decode_seconds;
  size_t num_tokens = 0;
  for (int round = 0; round < rounds; ++round) {
    auto start = Clock::now();
    const auto opened = pinfer::Tokenizer::open(argv[1]);
    open_seconds.push_back(seconds_since(start));
    if (!opened.ok()) {
      std::fprintf(stderr, "error: %s\n", opened.status().message().c_str());
      return 1;
    }
    const pinfer::Tokenizer& tokenizer = *opened.value();
    std::vector<std::vector<int32_t>> ids;
    ids.reserve(texts.size());
    start = Clock::now();
    for (const std::string& text : texts) ids.push_back(tokenizer.encode(text, false).value());
    encode_seconds.push_back(seconds_since(start));
    num_tokens = 0;
    for (const auto& one : ids) num_tokens += one.size();
    size_t decoded_size = 0;
    start = Clock::now();
    for (const auto& one : ids) decoded_size += tokenizer.decode(one, false).value().size();
    decode_seconds.push_back(seconds_since(start));
    if (decoded_size == 0) return 1;
  }
  const nlohmann::json result = {{"open_s", open_seconds},
                                 {"encode_s", encode_seconds},
                                 {"decode_s", decode_seconds},
                                 {"tokens", num_tokens}};
  std::cout << result.dump() << "\n";
  return 0;
}
