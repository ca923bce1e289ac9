#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tokenizer_fixture.h"

namespace pinfer {
namespace {

using Ids = std::vector<int32_t>;

TEST(TokenizerTest, MergesByRankWithinWords) {
  const auto tokenizer = open_fixture("byte_level");
  EXPECT_EQ(encode(*tokenizer, "hello world"), ids_of(*tokenizer, {"hello", "Ġworld"}));
  EXPECT_EQ(encode(*tokenizer, "helloworld"), ids_of(*tokenizer, {"hello", "w", "or", "ld"}));
  EXPECT_EQ(encode(*tokenizer, "aaaaaaa"), ids_of(*tokenizer, {"aaaa", "aa", "a"}));
  EXPECT_EQ(encode(*tokenizer, "1234"), ids_of(*tokenizer, {"1", "2", "3", "4"}));
  EXPECT_EQ(encode(*tokenizer, ""), Ids());
}

TEST(TokenizerTest, TextOfSpecialTokensBecomesThem) {
  const auto tokenizer = open_fixture("byte_level");
  EXPECT_EQ(encode(*tokenizer, "<s>hello</s><tool>"),
            ids_of(*tokenizer, {"<s>", "hello", "</s>", "<tool>"}));
  EXPECT_EQ(encode(*tokenizer, "<s").size(), 2u);
}

TEST(TokenizerTest, AddSpecialTokensFollowsThePostProcessor) {
  const auto tokenizer = open_fixture("byte_fallback");
  const Ids with = tokenizer->encode("Once", true).take();
  EXPECT_EQ(with, ids_of(*tokenizer, {"<s>", "▁Once"}));
  EXPECT_EQ(encode(*tokenizer, "Once"), ids_of(*tokenizer, {"▁Once"}));
  EXPECT_EQ(tokenizer->encode("", true).take(), ids_of(*tokenizer, {"<s>"}));
}

TEST(TokenizerTest, IgnoreMergesTakesWholeWordsFromTheVocabulary) {
  const auto with = open_fixture("ignore_merges");
  EXPECT_EQ(encode(*with, "word"), ids_of(*with, {"word"}));
  EXPECT_EQ(encode(*with, "words"), ids_of(*with, {"w", "or", "d", "s"}));
  const auto without = open_fixture("byte_level");
  EXPECT_EQ(encode(*without, "word"), ids_of(*without, {"w", "or", "d"}));
}

TEST(TokenizerTest, UnknownCharactersBecomeBytes) {
  const auto tokenizer = open_fixture("byte_fallback");
  EXPECT_EQ(encode(*tokenizer, "aé天"),
            ids_of(*tokenizer, {"▁a", "é", "<0xE5>", "<0xA4>", "<0xA9>"}));
}

TEST(TokenizerTest, UnigramTakesTheBestSumAndFusesUnknowns) {
  const auto tokenizer = open_fixture("unigram");
  EXPECT_EQ(encode(*tokenizer, "aba"), ids_of(*tokenizer, {"▁ab", "a"}));
  EXPECT_EQ(encode(*tokenizer, "axyb"), ids_of(*tokenizer, {"▁a", "<unk>", "b"}));
}

TEST(TokenizerTest, WordPieceTakesTheLongestOrNothing) {
  const auto tokenizer = open_fixture("word_piece");
  EXPECT_EQ(encode(*tokenizer, "unaffable the"),
            ids_of(*tokenizer, {"un", "##aff", "##able", "the"}));
  EXPECT_EQ(encode(*tokenizer, "unaffx"), ids_of(*tokenizer, {"[UNK]"}));
  EXPECT_EQ(encode(*tokenizer, "the" + std::string(18, 's')), ids_of(*tokenizer, {"[UNK]"}));
  EXPECT_EQ(decode(*tokenizer, ids_of(*tokenizer, {"un", "##aff", "the", ",", "!"})),
            "unaff the,!");
}

TEST(TokenizerTest, InvalidUtf8NamesTheByte) {
  const auto tokenizer = open_fixture("byte_level");
  const struct {
    std::string text;
    int offset;
  } cases[] = {
      {"\xFF", 0},
      {"abc\x80", 3},
      {"a\xC3", 1},
      {"\xC0\xAF", 0},
      {"ok\xED\xA0\x80", 2},
      {"\xF4\x90\x80\x80", 0},
      {"12345678\xE2\x82", 8},
      {"1234567\xE2\x82z", 7},
  };
  for (const auto& [text, offset] : cases) {
    const auto ids = tokenizer->encode(text, true);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.status().code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(ids.status().message().find("byte " + std::to_string(offset)), std::string::npos)
        << ids.status().message();
  }
  EXPECT_TRUE(tokenizer->encode(std::string("a\0b", 3), true).ok());
}

TEST(TokenizerTest, DecodeNamesAnIdThatIsNone) {
  const auto tokenizer = open_fixture("byte_level");
  for (const int32_t id : {-1, tokenizer->vocab_size(), INT32_MAX, INT32_MIN}) {
    const auto text = tokenizer->decode(Ids{0, id}, true);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.status().code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(text.status().message().find(std::to_string(id)), std::string::npos);
  }
}

TEST(TokenizerTest, DecodeLeavesSpecialTokensOutIfAsked) {
  const auto tokenizer = open_fixture("byte_level");
  const Ids ids = ids_of(*tokenizer, {"<s>", "hello", "<tool>", "</s>"});
  EXPECT_EQ(tokenizer->decode(ids, true).take(), "hello<tool>");
  EXPECT_EQ(tokenizer->decode(ids, false).take(), "<s>hello<tool></s>");
}

TEST(TokenizerTest, BrokenCharactersAreMarkedAsTheReferenceDoes) {
  const auto bytes = open_fixture("byte_level");
  Ids llama = encode(*bytes, "🦙");
  ASSERT_EQ(llama.size(), 2u);
  llama.pop_back();
  EXPECT_EQ(decode(*bytes, llama), "\uFFFD");
  const auto fallback = open_fixture("byte_fallback");
  EXPECT_EQ(decode(*fallback, ids_of(*fallback, {"<0xF0>", "<0x9F>"})), "\uFFFD\uFFFD");
  EXPECT_EQ(decode(*fallback, ids_of(*fallback, {"<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"})), "🦙");
  // One bad byte spoils the run.
  EXPECT_EQ(
      decode(*fallback, ids_of(*fallback, {"<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "<0xF0>"})),
      "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(TokenizerTest, TokensByIdAndText) {
  const auto tokenizer = open_fixture("byte_level");
  const int32_t world = id_of(*tokenizer, "Ġworld");
  EXPECT_TRUE(tokenizer->has_token(world));
  EXPECT_FALSE(tokenizer->has_token(-1));
  EXPECT_FALSE(tokenizer->has_token(tokenizer->vocab_size()));
  EXPECT_EQ(tokenizer->id_to_token(world), "Ġworld");
  EXPECT_EQ(tokenizer->token_bytes(world), " world");
  EXPECT_EQ(tokenizer->id_to_token(-5), "");
  EXPECT_EQ(tokenizer->token_to_id("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(id_of(*tokenizer, "<s>")));
  EXPECT_FALSE(tokenizer->is_special(id_of(*tokenizer, "<tool>")));
  const auto fallback = open_fixture("byte_fallback");
  EXPECT_EQ(fallback->token_bytes(id_of(*fallback, "<0xE5>")), "\xE5");
  EXPECT_EQ(fallback->token_bytes(id_of(*fallback, "▁time")), " time");
}

TEST(TokenizerTest, LongTextsTakeLinearTime) {
  std::string letters, mixed;
  for (int i = 0; i < 400000; ++i) {
    letters += 'a';
    mixed += static_cast<char>('a' + i * 7 % 26);
  }
  const std::string spaces(400000, ' ');
  for (const char* name : kFixtures) {
    const auto tokenizer = open_fixture(name);
    for (const std::string& text : {letters, mixed, spaces}) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(tokenizer->encode(text, true).ok());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 5.0) << name << " " << text.substr(0, 3);
    }
  }
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  for (const char* name : kFixtures) {
    const auto tokenizer = open_fixture(name);
    const std::string text = "hello world <s> the unaffable Once upon a time aba 🦙 123";
    const Ids expected = encode(*tokenizer, text);
    std::vector<std::thread> threads;
    std::vector<int> failures(4, 0);
    for (size_t i = 0; i < failures.size(); ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 200; ++round) {
          if (tokenizer->encode(text, false).take() != expected) ++failures[i];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, std::vector<int>(4, 0)) << name;
  }
}

}  // namespace
}  // namespace pinfer
