#include "scheduler/token_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace millrace::scheduler {
namespace {

TEST(TokenStream, WakesOncePerEdgeUntilTaken) {
  TokenStream stream;
  int wakes = 0;
  stream.OnReady([&] { ++wakes; });
  EXPECT_EQ(wakes, 0);
  stream.Push({.id = 1});
  stream.Push({.id = 2});
  stream.PushPrompt({.id = 3});
  EXPECT_EQ(wakes, 1);
  TokenStream::Taken taken = stream.Take();
  EXPECT_EQ(taken.tokens.size(), 2u);
  EXPECT_EQ(taken.prompt.size(), 1u);
  EXPECT_FALSE(taken.end.has_value());
  EXPECT_EQ(wakes, 1);
  stream.Push({.id = 4});
  EXPECT_EQ(wakes, 2);
  stream.Finish({.output_tokens = 3});  // still not taken: no second wake
  EXPECT_EQ(wakes, 2);
  taken = stream.Take();
  EXPECT_EQ(taken.tokens.size(), 1u);
  ASSERT_TRUE(taken.end.has_value());
  EXPECT_EQ(taken.end->output_tokens, 3);
  EXPECT_FALSE(stream.Take().end.has_value()) << "the end came twice";
}

TEST(TokenStream, ProgressOfThePromptWakesItsReader) {
  TokenStream stream;
  stream.PushProgress({.total = 8, .processed = 0});
  int wakes = 0;
  stream.OnReady([&] { ++wakes; });
  EXPECT_EQ(wakes, 1);
  stream.PushProgress({.total = 8, .processed = 4});
  EXPECT_EQ(wakes, 1);
  const TokenStream::Taken taken = stream.Take();
  ASSERT_EQ(taken.progress.size(), 2u);
  EXPECT_EQ(taken.progress[1].processed, 4);
  stream.PushProgress({.total = 8, .processed = 8});
  EXPECT_EQ(wakes, 2);
}

TEST(TokenStream, WakesAtOnceWhenSomethingIsThere) {
  TokenStream stream;
  stream.Push({.id = 1});
  int wakes = 0;
  stream.OnReady([&] { ++wakes; });
  EXPECT_EQ(wakes, 1);
  stream.Push({.id = 2});
  EXPECT_EQ(wakes, 1);
}

TEST(TokenStream, WakesForAnEndThatCameBeforeTheReader) {
  TokenStream stream;
  stream.Finish({});
  int wakes = 0;
  stream.OnReady([&] { ++wakes; });
  EXPECT_EQ(wakes, 1);
}

TEST(TokenStream, ReaderMayTakeFromWithinItsWake) {
  TokenStream stream;
  std::vector<int32_t> ids;
  stream.OnReady([&] {
    for (const TokenEvent& event : stream.Take().tokens) {
      ids.push_back(event.id);
    }
  });
  stream.Push({.id = 1});
  stream.Push({.id = 2});
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2}));
}

TEST(TokenStream, LetsGoOfItsReaderAtTheEnd) {
  auto stream = std::make_shared<TokenStream>();
  auto reader = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = reader;
  // The usual knot: the reader owns the stream, the wake owns the reader.
  stream->OnReady([stream, reader = std::move(reader)] { ++*reader; });
  stream->Push({.id = 1});
  EXPECT_FALSE(watch.expired());
  stream->Finish({});
  EXPECT_TRUE(watch.expired());
  stream->OnReady([stream] {});
  EXPECT_EQ(stream.use_count(), 1);
}

TEST(TokenStream, NothingIsLostBetweenTwoThreads) {
  TokenStream stream;
  std::atomic<int> wakes{0};
  stream.OnReady([&] {
    ++wakes;
    wakes.notify_one();
  });
  std::thread writer([&] {
    for (int32_t id = 0; id < 10'000; ++id) stream.Push({.id = id});
    stream.Finish({});
  });
  int32_t next = 0;
  int seen = 0;
  for (bool ended = false; !ended;) {
    wakes.wait(seen);  // a lost wake would hang here
    seen = wakes;
    TokenStream::Taken taken = stream.Take();
    for (const TokenEvent& event : taken.tokens) EXPECT_EQ(event.id, next++);
    ended = taken.end.has_value();
  }
  EXPECT_EQ(next, 10'000);
  writer.join();
}

}  // namespace
}  // namespace millrace::scheduler
