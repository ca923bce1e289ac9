#include "tokenizer/streaming_detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "core/utf8.h"
#include "tokenizer_fixture.h"

namespace pinfer {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;

// The pieces of a stream, the last one from finish().
Texts stream(const Tokenizer& tokenizer, const Ids& ids, const Ids& prompt_ids = {}) {
  StreamingDetokenizer detokenizer(tokenizer, prompt_ids, true);
  Texts texts;
  for (const int32_t id : ids) texts.push_back(detokenizer.add(id));
  texts.push_back(detokenizer.finish());
  return texts;
}

std::string join(const Texts& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += text;
  return joined;
}

TEST(StreamingDetokenizerTest, CharactersComeWhole) {
  const auto tokenizer = open_fixture("byte_level");
  const Ids ids = encode(*tokenizer, "🦙 🦙");
  ASSERT_EQ(ids.size(), 5u);  // half, half, space and a byte, byte, half
  EXPECT_EQ(stream(*tokenizer, ids), Texts({"", "🦙", " ", "", "🦙", ""}));
}

TEST(StreamingDetokenizerTest, ByteFallbackCharactersComeWhole) {
  const auto tokenizer = open_fixture("byte_fallback");
  const Ids ids = ids_of(*tokenizer, {"a", "<0xE5>", "<0xA4>", "<0xA9>", "▁time"});
  EXPECT_EQ(stream(*tokenizer, ids), Texts({"a", "", "", "天", " time", ""}));
}

TEST(StreamingDetokenizerTest, ImpossibleBytesAreMarkedAtOnce) {
  const auto tokenizer = open_fixture("byte_fallback");
  EXPECT_EQ(stream(*tokenizer, ids_of(*tokenizer, {"<0xFF>", "a"})), Texts({"\uFFFD", "a", ""}));
  // A pending lead byte, and then a token that begins with a space.
  EXPECT_EQ(stream(*tokenizer, ids_of(*tokenizer, {"<0xF0>", "▁a"})), Texts({"", "\uFFFD a", ""}));
  // F0 can only be followed by 90 to BF.
  EXPECT_EQ(stream(*tokenizer, ids_of(*tokenizer, {"<0xF0>", "<0x80>"})),
            Texts({"", "\uFFFD\uFFFD", ""}));
}

TEST(StreamingDetokenizerTest, ValidCharactersOfABrokenRunStay) {
  const auto tokenizer = open_fixture("byte_fallback");
  const Ids ids = ids_of(*tokenizer, {"<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "<0xF0>", "a"});
  EXPECT_EQ(join(stream(*tokenizer, ids)), "🦙\uFFFDa");
}

TEST(StreamingDetokenizerTest, AnUnfinishedCharacterIsMarkedAtTheEnd) {
  const auto bytes = open_fixture("byte_level");
  const Ids llama = encode(*bytes, "🦙");
  EXPECT_EQ(stream(*bytes, {llama[0]}), Texts({"", "\uFFFD"}));
  const auto fallback = open_fixture("byte_fallback");
  EXPECT_EQ(stream(*fallback, ids_of(*fallback, {"<0xF0>", "<0x9F>"})),
            Texts({"", "", "\uFFFD\uFFFD"}));
}

TEST(StreamingDetokenizerTest, OutputAfterPromptTextKeepsItsSpace) {
  const auto tokenizer = open_fixture("byte_fallback");
  const Ids output = ids_of(*tokenizer, {"▁upon", "▁a", "▁time"});
  EXPECT_EQ(join(stream(*tokenizer, output, ids_of(*tokenizer, {"<s>", "▁Once"}))), " upon a time");
  EXPECT_EQ(join(stream(*tokenizer, output)), "upon a time");
  EXPECT_EQ(join(stream(*tokenizer, output, ids_of(*tokenizer, {"▁Once", "</s>"}))), "upon a time");
}

TEST(StreamingDetokenizerTest, MetaspaceFollowsTheSameRule) {
  const auto tokenizer = open_fixture("unigram");
  const Ids output = ids_of(*tokenizer, {"▁ab", "▁a"});
  EXPECT_EQ(join(stream(*tokenizer, output)), "ab a");
  EXPECT_EQ(join(stream(*tokenizer, output, ids_of(*tokenizer, {"▁ab"}))), " ab a");
}

TEST(StreamingDetokenizerTest, APromptMayEndInsideACharacter) {
  const auto tokenizer = open_fixture("byte_level");
  const Ids llama = encode(*tokenizer, "🦙");
  const Ids a = ids_of(*tokenizer, {"a"});
  EXPECT_EQ(stream(*tokenizer, {llama[1]}, {llama[0]}), Texts({"🦙", ""}));
  // The prompt's own broken bytes are not the output's.
  EXPECT_EQ(stream(*tokenizer, a, {llama[0]}), Texts({"a", ""}));
  EXPECT_EQ(stream(*tokenizer, {}, {llama[0]}), Texts({""}));
}

TEST(StreamingDetokenizerTest, SpecialAndUnknownIdsAddNothing) {
  const auto tokenizer = open_fixture("byte_level");
  StreamingDetokenizer skipping(*tokenizer, {}, true);
  EXPECT_EQ(skipping.add(id_of(*tokenizer, "</s>")), "");
  EXPECT_EQ(skipping.add(-7), "");
  EXPECT_EQ(skipping.add(tokenizer->vocab_size()), "");
  StreamingDetokenizer showing(*tokenizer, {}, false);
  EXPECT_EQ(showing.add(id_of(*tokenizer, "</s>")), "</s>");
}

TEST(StreamingDetokenizerTest, PiecesJoinToTheWholeText) {
  std::mt19937 random(1);
  for (const char* name : {"byte_level", "ignore_merges", "unigram", "word_piece"}) {
    const auto tokenizer = open_fixture(name);
    for (int round = 0; round < 2000; ++round) {
      Ids ids(random() % 12);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % tokenizer->vocab_size());
      const Texts texts = stream(*tokenizer, ids);
      EXPECT_EQ(join(texts), tokenizer->decode(ids, true).take()) << name;
      for (const std::string& text : texts) {
        EXPECT_EQ(find_invalid_utf8(text), std::string::npos);
      }
    }
  }
}

TEST(StreamingDetokenizerTest, ByteFallbackPiecesJoinToTheWholeTextOfValidRuns) {
  const auto tokenizer = open_fixture("byte_fallback");
  std::mt19937 random(2);
  const std::string characters[] = {"a", "é", "天", "🦙", " ", "<s>", "Once upon a time", "\n"};
  for (int round = 0; round < 1000; ++round) {
    std::string text;
    for (unsigned i = random() % 9; i > 0; --i) text += characters[random() % 8];
    const Ids ids = encode(*tokenizer, text);
    EXPECT_EQ(join(stream(*tokenizer, ids)), decode(*tokenizer, ids)) << text;
  }
}

}  // namespace
}  // namespace pinfer
