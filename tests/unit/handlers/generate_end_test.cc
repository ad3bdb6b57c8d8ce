// Every way a request can end, each exactly once.
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <stop_token>

#include "handlers/generate.h"
#include "tests/unit/handlers/fakes.h"

namespace millrace::handlers {
namespace {

using EngineReason = scheduler::FinishReason;

// An end without acceptance or chunks.
Status EndOf(World& world, GenerateRequest request, std::stop_token stop = {}) {
  auto sink = world.Start(std::move(request), stop);
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_FALSE(sink->accepted());
  EXPECT_TRUE(sink->chunks().empty());
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(sink->places_at_end(), 0);
  EXPECT_EQ(world.engine.num_submitted(), 0u);
  return end.status;
}

TEST(GenerateEnd, RefusedPlaceIsTheEngineStatusFromAPoolThread) {
  World world;
  world.engine.reserve_status =
      ResourceExhausted("the queue is full").RetryAfterMs(1234);
  const Status status = EndOf(world, TextRequest("Hi"));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.retry_after_ms(), 1234);
}

TEST(GenerateEnd, FullPoolRefusesAndGivesThePlaceBack) {
  World world(/*threads=*/1, /*max_queued=*/0);
  const Status status = EndOf(world, TextRequest("Hi"));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.retry_after_ms(), 1000);
}

TEST(GenerateEnd, RefusedSubmitIsTold) {
  World world;
  world.engine.submit_status = Unavailable("draining");
  EXPECT_EQ(EndOf(world, TextRequest("Hi")).code(), StatusCode::kUnavailable);
}

TEST(GenerateEnd, PromptLongerThanTheContextNamesTokensAndLimit) {
  World world;
  const Status status =
      EndOf(world, TokenRequest(std::vector<int32_t>(kMaxContext, 1)));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.reason(), "context_length_exceeded");
  EXPECT_EQ(status.field(), "prompt");
  EXPECT_EQ(status.message(),
            "prompt has 64 tokens but model 'tiny' takes at most 64 tokens, "
            "prompt and completion together; shorten it");
  const Status chat = EndOf(world, ChatRequest(std::string(100, 'x')));
  EXPECT_EQ(chat.reason(), "context_length_exceeded");
  EXPECT_EQ(chat.field(), "messages");
}

TEST(GenerateEnd, HugePromptIsRefusedBeforeItIsEncoded) {
  World world;
  for (GenerateRequest request : {TextRequest(std::string(1 << 20, 'x')),
                                  ChatRequest(std::string(1 << 20, 'x'))}) {
    const Status status = EndOf(world, std::move(request));
    EXPECT_EQ(status.reason(), "context_length_exceeded");
    EXPECT_NE(status.message().find("has at least 87"), std::string::npos)
        << status.message();
  }
}

TEST(GenerateEnd, MaxTokensBeyondTheContextIsRefused) {
  World world;
  const Status status = EndOf(world, TokenRequest({1, 2}, {.max_tokens = 63}));
  EXPECT_EQ(status.field(), "max_tokens");
  EXPECT_EQ(status.reason(), "context_length_exceeded");
  EXPECT_NE(status.message().find("ask for at most 62"), std::string::npos);
}

TEST(GenerateEnd, MinTokensBeyondTheDefaultIsRefused) {
  World world;
  EXPECT_EQ(EndOf(world, TokenRequest({1}, {.min_tokens = 17})).field(),
            "min_tokens");
}

TEST(GenerateEnd, IdsOutsideTheVocabularyAreRefused) {
  World world;
  EXPECT_EQ(EndOf(world, TokenRequest({1, kVocabSize})).message(),
            "prompt[1] is token 259 but model 'tiny' has tokens 0 to 258");
  EXPECT_EQ(EndOf(world, TokenRequest({-1})).field(), "prompt");
  EXPECT_EQ(
      EndOf(world, TextRequest("Hi", {.logit_bias = {{kVocabSize, 1.0f}}}))
          .message(),
      "a key of logit_bias is token 259 but model 'tiny' has tokens 0 to 258");
  EXPECT_EQ(
      EndOf(world, TextRequest("Hi", {.stop_token_ids = {kVocabSize}}))
          .message(),
      "stop_token_ids[0] is token 259 but model 'tiny' has tokens 0 to 258");
  EXPECT_EQ(EndOf(world, TokenRequest({})).field(), "prompt");
}

TEST(GenerateEnd, ChatWithoutTemplateSaysWhatToDo) {
  World world;
  world.parts.chat_template = nullptr;
  world.handler = MakeGenerateHandler(world.parts);
  const Status status = EndOf(world, ChatRequest("Hi"));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("/v1/completions"), std::string::npos);
}

TEST(GenerateEnd, TemplateThatRaisesIsItsOwnText) {
  World world;
  GenerateRequest request = TextRequest("");
  request.prompt = Chat(R"([{"role": "system", "content": "x"}])");
  const Status status = EndOf(world, std::move(request));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "no system here");
  EXPECT_EQ(status.field(), "messages");
}

TEST(GenerateEnd, ClientThatIsGoneAlreadyNeverReachesTheEngine) {
  World world;
  std::stop_source client;
  client.request_stop();
  EXPECT_EQ(EndOf(world, TextRequest("Hi"), client.get_token()).code(),
            StatusCode::kCancelled);
}

TEST(GenerateEnd, ClientThatLeavesTheQueueNeverReachesTheEngine) {
  World world(/*threads=*/1);
  std::stop_source client;
  std::latch left(1);
  ASSERT_TRUE(world.pool.TryPost([&] { left.wait(); }));
  auto sink = world.Start(TextRequest("Hi"), client.get_token());
  EXPECT_EQ(world.engine.places(), 1) << "reserved before it is read";
  client.request_stop();
  left.count_down();
  EXPECT_EQ(sink->AwaitEnd().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(world.engine.num_submitted(), 0u);
}

TEST(GenerateEnd, PassedDeadlineIsTold) {
  World world;
  GenerateRequest request = TextRequest("Hi");
  request.deadline = Clock::Real().Now();
  EXPECT_EQ(EndOf(world, std::move(request)).code(),
            StatusCode::kDeadlineExceeded);
}

TEST(GenerateEnd, ClientThatLeavesMidStreamStopsTheEngine) {
  World world;
  std::stop_source client;
  auto sink = world.Start(TextRequest("Hi"), client.get_token());
  auto engine = world.engine.Next();
  engine->Say("abc");
  sink->AwaitText("abc");
  EXPECT_FALSE(engine->task.stop.stop_requested());
  client.request_stop();
  EXPECT_TRUE(engine->task.stop.stop_requested());
  EXPECT_FALSE(sink->ended()) << "the place is still the engine's";
  engine->End(EngineReason::kError, Cancelled("stopped"));
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_EQ(end.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(end.usage.completion_tokens, 3);
  EXPECT_EQ(sink->places_at_end(), 0);
}

TEST(GenerateEnd, EngineFailureMidStreamComesAfterTheTextSoFar) {
  World world;
  auto sink = world.Start(TextRequest("Hi", {.stop = {"abX"}}));
  auto engine = world.engine.Next();
  engine->Say("ab");
  engine->End(EngineReason::kError, Internal("the device is gone"));
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_EQ(end.status.code(), StatusCode::kInternal);
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(sink->text(), "ab");
}

TEST(GenerateEnd, ModelsOwnEndIsStopWithoutReason) {
  World world;
  auto sink = world.Start(TextRequest("Hi"));
  auto engine = world.engine.Next();
  engine->Say("ok");
  engine->SayId(kImEnd);
  engine->End(EngineReason::kStop);
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.reason, FinishReason::kStop);
  EXPECT_EQ(end.stop_reason.index(), 0u);
  EXPECT_EQ(end.usage.completion_tokens, 3);
  EXPECT_EQ(sink->text(), "ok");
}

TEST(GenerateEnd, ClientsStopTokenIsTheReasonAndNotShown) {
  World world;
  for (const bool include : {false, true}) {
    auto sink =
        world.Start(TextRequest("Hi", {.stop_token_ids = {'!'},
                                       .include_stop_str_in_output = include}));
    auto engine = world.engine.Next();
    engine->Say("ok!");
    engine->End(EngineReason::kStop);
    const GenerateEnd end = sink->AwaitEnd();
    EXPECT_EQ(end.reason, FinishReason::kStop);
    EXPECT_EQ(std::get<int32_t>(end.stop_reason), '!');
    EXPECT_EQ(end.usage.completion_tokens, 3);
    EXPECT_EQ(sink->text(), include ? "ok!" : "ok");
  }
}

TEST(GenerateEnd, StopStringStopsTheEngineAndHidesWhatItRanAhead) {
  World world;
  auto sink = world.Start(TextRequest("Hi", {.stop = {"END", "never"}}));
  auto engine = world.engine.Next();
  engine->Say("one EN");
  sink->AwaitText("one ");
  EXPECT_FALSE(engine->task.stop.stop_requested());
  std::promise<void> stopped;
  std::stop_callback on_stop(engine->task.stop, [&] { stopped.set_value(); });
  engine->Say("D");
  stopped.get_future().wait();
  engine->Say("more");  // a step was in flight
  EXPECT_FALSE(sink->ended());
  engine->End(EngineReason::kError, Cancelled("stopped"), 1);
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_TRUE(end.status.ok()) << end.status.ToString();
  EXPECT_EQ(end.reason, FinishReason::kStop);
  EXPECT_EQ(std::get<std::string>(end.stop_reason), "END");
  EXPECT_EQ(end.usage.completion_tokens, 7);
  EXPECT_EQ(end.usage.cached_tokens, 1);
  EXPECT_EQ(sink->text(), "one ");
  EXPECT_EQ(sink->places_at_end(), 0);
}

TEST(GenerateEnd, StopStringFoundInTheLastBatchOfTokens) {
  World world;
  auto sink = world.Start(TextRequest("Hi", {.stop = {"END"}}));
  auto engine = world.engine.Next();
  engine->Say("aENDb");
  engine->End(EngineReason::kLength);
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_EQ(end.reason, FinishReason::kStop);
  EXPECT_EQ(sink->text(), "a");
  EXPECT_EQ(end.usage.completion_tokens, 4);
}

}  // namespace
}  // namespace millrace::handlers
