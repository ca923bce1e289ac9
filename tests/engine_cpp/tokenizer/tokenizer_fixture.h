// The small tokenizers in tests/data/tokenizer (made by tests/export/tokenizer_fixtures.py).
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace pinfer {

inline constexpr const char* kFixtures[] = {"byte_level", "ignore_merges", "byte_fallback",
                                            "unigram", "word_piece"};

inline std::string fixture_path(const std::string& name) {
  return std::string(PINFER_TEST_DIR) + "/data/tokenizer/" + name + ".bin";
}

inline std::string read_fixture(const std::string& name) {
  std::ifstream file(fixture_path(name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Fails the test if the fixture cannot be opened.
inline std::unique_ptr<Tokenizer> open_fixture(const std::string& name) {
  auto tokenizer = Tokenizer::open(fixture_path(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? tokenizer.take() : nullptr;
}

inline std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.encode(text, false);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? ids.take() : std::vector<int32_t>();
}

inline std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  auto text = tokenizer.decode(ids, true);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? text.take() : std::string();
}

inline int32_t id_of(const Tokenizer& tokenizer, std::string_view token) {
  const auto id = tokenizer.token_to_id(token);
  EXPECT_TRUE(id.has_value()) << token;
  return id.value_or(-1);
}

inline std::vector<int32_t> ids_of(const Tokenizer& tokenizer,
                                   std::initializer_list<std::string_view> tokens) {
  std::vector<int32_t> ids;
  for (const std::string_view token : tokens) ids.push_back(id_of(tokenizer, token));
  return ids;
}

}  // namespace pinfer
