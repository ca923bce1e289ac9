// A tool for tests: `tokenize_tool TOKENIZER_BIN` answers requests on stdin until its end. Whole
// batches as arrays: full matrices are tens of millions of texts. All numbers have 32 bits in the
// machine's order; lengths are those of one entry after the other, whose data follow likewise.
//
// Request: operation, flag (add_special_tokens or skip_special_tokens), number of entries, then
//   0 encode: lengths, bytes of the texts
//   1 decode: lengths, ids
//   2 stream: lengths, lengths of the prompts, ids, ids of the prompts
// Answer: lengths (-1 for an error) and
//   0 encode: ids
//   1 decode: bytes of the texts
//   2 stream: bytes of the pieces, of which a stream of n ids has n + 1
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace {

using Lengths = std::vector<int32_t>;

template <typename T>
std::vector<T> read_values(size_t count) {
  std::vector<T> values(count);
  if (std::fread(values.data(), sizeof(T), count, stdin) != count) {
    std::fprintf(stderr, "error: a request ends too early\n");
    std::exit(1);
  }
  return values;
}

template <typename T>
void write_values(const std::vector<T>& values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

// Where each entry begins, and the end of the last one.
std::vector<size_t> offsets_of(const std::vector<uint32_t>& lengths) {
  std::vector<size_t> offsets(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1, std::plus<size_t>());
  return offsets;
}

// What a part of the entries gives.
template <typename T>
struct Answers {
  Lengths lengths;
  std::vector<T> data;

  template <typename Values>
  void add(const Values& values) {
    lengths.push_back(static_cast<int32_t>(values.size()));
    data.insert(data.end(), values.begin(), values.end());
  }
  void add_error() { lengths.push_back(-1); }
};

// Answers all entries, on all processors: answer(entry, answers).
template <typename T>
void answer_all(size_t count, const std::function<void(size_t, Answers<T>*)>& answer) {
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  const size_t num_parts = std::min(most, count / 256 + 1);
  std::vector<Answers<T>> parts(num_parts);
  std::vector<std::thread> threads;
  for (size_t part = 0; part < num_parts; ++part) {
    threads.emplace_back([&, part] {
      const size_t end = count * (part + 1) / num_parts;
      for (size_t i = count * part / num_parts; i < end; ++i) answer(i, &parts[part]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& part : parts) write_values(part.lengths);
  for (const auto& part : parts) write_values(part.data);
  std::fflush(stdout);
}

void encode(const pinfer::Tokenizer& tokenizer, bool add_special_tokens, size_t count) {
  const auto offsets = offsets_of(read_values<uint32_t>(count));
  const auto bytes = read_values<char>(offsets.back());
  answer_all<int32_t>(count, [&](size_t i, Answers<int32_t>* answers) {
    const std::string_view text(bytes.data() + offsets[i], offsets[i + 1] - offsets[i]);
    const auto ids = tokenizer.encode(text, add_special_tokens);
    if (ids.ok()) {
      answers->add(ids.value());
    } else {
      answers->add_error();
    }
  });
}

void decode(const pinfer::Tokenizer& tokenizer, bool skip_special_tokens, size_t count) {
  const auto offsets = offsets_of(read_values<uint32_t>(count));
  const auto ids = read_values<int32_t>(offsets.back());
  answer_all<char>(count, [&](size_t i, Answers<char>* answers) {
    const auto text = tokenizer.decode({ids.data() + offsets[i], offsets[i + 1] - offsets[i]},
                                       skip_special_tokens);
    if (text.ok()) {
      answers->add(text.value());
    } else {
      answers->add_error();
    }
  });
}

void stream(const pinfer::Tokenizer& tokenizer, bool skip_special_tokens, size_t count) {
  const auto offsets = offsets_of(read_values<uint32_t>(count));
  const auto prompt_offsets = offsets_of(read_values<uint32_t>(count));
  const auto ids = read_values<int32_t>(offsets.back());
  const auto prompt_ids = read_values<int32_t>(prompt_offsets.back());
  answer_all<char>(count, [&](size_t i, Answers<char>* answers) {
    const size_t begin = prompt_offsets[i];
    pinfer::StreamingDetokenizer detokenizer(
        tokenizer, {prompt_ids.data() + begin, prompt_offsets[i + 1] - begin}, skip_special_tokens);
    for (size_t k = offsets[i]; k < offsets[i + 1]; ++k) answers->add(detokenizer.add(ids[k]));
    answers->add(detokenizer.finish());
  });
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
  uint32_t request[3];
  while (std::fread(request, sizeof(request), 1, stdin) == 1) {
    const auto& answer = request[0] == 0 ? encode : request[0] == 1 ? decode : stream;
    answer(*tokenizer.value(), request[1] != 0, request[2]);
  }
  return 0;
}
