#include "engine/request_stream.h"

#include <gtest/gtest.h>

#include <thread>

namespace pinfer {
namespace {

using ReadResult = RequestStream::ReadResult;

StreamOutput piece(const std::string& text, int32_t id, const std::string& finish_reason = "") {
  StreamOutput output;
  output.text = text;
  output.token_ids = {id};
  output.finish_reason = finish_reason;
  return output;
}

TEST(RequestStream, PutsUnreadPiecesTogether) {
  RequestStream stream;
  stream.push(piece("a", 1));
  stream.push(piece("b", 2, "stop"));
  StreamOutput output;
  ASSERT_EQ(stream.read(std::nullopt, &output), ReadResult::OUTPUT);
  EXPECT_EQ(output.text, "ab");
  EXPECT_EQ(output.token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(output.finish_reason, "stop");
  EXPECT_EQ(stream.read(std::nullopt, &output), ReadResult::ENDED);
}

TEST(RequestStream, TimesOutWithoutOutput) {
  RequestStream stream;
  StreamOutput output;
  EXPECT_EQ(stream.read(std::chrono::milliseconds(0), &output), ReadResult::TIMED_OUT);
}

TEST(RequestStream, ReaderGetsEverythingInOrder) {
  constexpr int kPieces = 2000;
  RequestStream stream;
  std::thread writer([&] {
    for (int i = 0; i < kPieces; ++i) {
      stream.push(piece("x", i, i + 1 == kPieces ? "length" : ""));
    }
  });
  std::vector<int32_t> ids;
  size_t characters = 0;
  StreamOutput output;
  while (stream.read(std::nullopt, &output) == ReadResult::OUTPUT) {
    ids.insert(ids.end(), output.token_ids.begin(), output.token_ids.end());
    characters += output.text.size();
  }
  writer.join();
  ASSERT_EQ(ids.size(), static_cast<size_t>(kPieces));
  EXPECT_EQ(characters, static_cast<size_t>(kPieces));
  for (int i = 0; i < kPieces; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
}

TEST(RequestStream, CallbackIsNotCalledOnceDetached) {
  std::atomic<int> calls{0};
  RequestStream stream([&](const StreamOutput&) { ++calls; });
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) stream.push(piece("x", 1));
  });
  while (calls == 0) std::this_thread::yield();
  stream.detach_callback();
  const int before = calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(calls, before);
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace pinfer
