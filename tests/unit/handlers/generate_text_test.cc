// What the client sees of the tokens: characters, log-probabilities, echo.
#include <gtest/gtest.h>

#include <thread>

#include "config/base/utf8.h"
#include "handlers/generate.h"
#include "tests/unit/handlers/fakes.h"

namespace millrace::handlers {
namespace {

using EngineReason = scheduler::FinishReason;

TEST(GenerateText, CharactersAreNeverCut) {
  World world;
  auto sink = world.Start(TextRequest("Hi"));
  auto engine = world.engine.Next();
  engine->Say("a\xF0\x9F\x98");
  sink->AwaitText("a");
  engine->Say("\x80");
  sink->AwaitText("a\xF0\x9F\x98\x80");
  engine->Say("\xC3");
  engine->End(EngineReason::kLength);
  sink->AwaitEnd();
  EXPECT_EQ(sink->text(), "a\xF0\x9F\x98\x80\xEF\xBF\xBD");
  for (const OutputDelta& chunk : sink->chunks()) {
    EXPECT_TRUE(IsValidUtf8(chunk.text));
  }
}

TEST(GenerateText, SpecialTokensAreShownOnlyWhenAskedFor) {
  World world;
  for (const bool skip : {true, false}) {
    auto sink = world.Start(TextRequest("Hi", {.skip_special_tokens = skip}));
    auto engine = world.engine.Next();
    engine->Say("a");
    engine->SayId(kImStart);
    engine->Say("b");
    engine->SayId(kImEnd);
    engine->End(EngineReason::kStop);
    EXPECT_EQ(sink->AwaitEnd().usage.completion_tokens, 4);
    EXPECT_EQ(sink->text(), skip ? "ab" : "a<|im_start|>b");
  }
}

TEST(GenerateText, LogprobsComeWithTheirText) {
  World world;
  auto sink = world.Start(TextRequest("Hi", {.logprobs = 2}));
  auto engine = world.engine.Next();
  engine->SayId(0xC3, -1.0f, {{0xC3, -1.0f}, {'z', -2.0f}});
  engine->SayId(0xA4, -0.5f, {{0xA4, -0.5f}, {-1, 0}});
  engine->SayId('x', -0.25f);
  engine->SayId(kImEnd, -3.0f);
  engine->End(EngineReason::kStop);
  sink->AwaitEnd();
  EXPECT_EQ(sink->text(), "\xC3\xA4x");
  const auto logprobs = sink->logprobs();
  ASSERT_EQ(logprobs.size(), 3u) << "the model's end is no content";
  EXPECT_EQ(logprobs[0].chosen.id, 0xC3);
  EXPECT_EQ(logprobs[0].chosen.bytes, "\xC3");
  EXPECT_EQ(logprobs[0].chosen.logprob, -1.0f);
  ASSERT_EQ(logprobs[0].top.size(), 2u);
  EXPECT_EQ(logprobs[0].top[1].bytes, "z");
  EXPECT_EQ(logprobs[0].top[1].logprob, -2.0f);
  EXPECT_EQ(logprobs[1].top.size(), 1u) << "unused entries are left out";
  EXPECT_TRUE(logprobs[2].top.empty());
  // Each chunk's tokens spell its text.
  for (const OutputDelta& chunk : sink->chunks()) {
    std::string spelled;
    for (const auto& token : chunk.logprobs) spelled += token.chosen.bytes;
    EXPECT_EQ(spelled, chunk.text);
  }
}

TEST(GenerateText, NoLogprobsWithoutAsking) {
  World world;
  auto sink = world.Start(TextRequest("Hi"));
  auto engine = world.engine.Next();
  EXPECT_FALSE(engine->task.sampling.logprobs);
  engine->Say("abc");
  engine->End(EngineReason::kLength);
  sink->AwaitEnd();
  EXPECT_TRUE(sink->logprobs().empty());
}

TEST(GenerateText, MinTokensHoldsStopStringsOff) {
  World world;
  auto sink = world.Start(
      TextRequest("Hi", {.max_tokens = 16, .min_tokens = 4, .stop = {"ab"}}));
  auto engine = world.engine.Next();
  engine->Say("abaxab");
  engine->End(EngineReason::kLength);
  EXPECT_EQ(sink->AwaitEnd().usage.completion_tokens, 6);
  EXPECT_EQ(sink->text(), "abax");
}

TEST(GenerateText, EchoComesFirst) {
  World world;
  auto sink = world.Start(TextRequest("Hi <s>", {.echo = true}));
  auto engine = world.engine.Next();
  EXPECT_FALSE(engine->task.prompt_logprobs);
  sink->AwaitText("Hi <s>");
  engine->Say("!");
  engine->End(EngineReason::kLength);
  sink->AwaitEnd();
  EXPECT_EQ(sink->text(), "Hi <s>!");
  EXPECT_EQ(sink->chunks()[0].num_tokens, 0);
}

TEST(GenerateText, EchoOfTokensIsTheirText) {
  World world;
  auto sink = world.Start(TokenRequest({kBos, 'H', 'i'}, {.echo = true}));
  auto engine = world.engine.Next();
  engine->End(EngineReason::kLength);
  sink->AwaitEnd();
  EXPECT_EQ(sink->text(), "Hi");
}

TEST(GenerateText, EchoWithLogprobsWaitsForTheScoresOfThePrompt) {
  World world;
  auto sink =
      world.Start(TokenRequest({'H', 'i', '.'}, {.echo = true, .logprobs = 0}));
  auto engine = world.engine.Next();
  EXPECT_TRUE(engine->task.prompt_logprobs);
  engine->ScorePrompt('i', -1.0f);
  engine->ScorePrompt('.', -2.0f);
  engine->SayId('!', -3.0f);
  engine->End(EngineReason::kLength);
  sink->AwaitEnd();
  EXPECT_EQ(sink->text(), "Hi.!");
  const auto logprobs = sink->logprobs();
  ASSERT_EQ(logprobs.size(), 4u);
  EXPECT_FALSE(logprobs[0].has_logprob);
  EXPECT_EQ(logprobs[0].chosen.bytes, "H");
  EXPECT_TRUE(logprobs[1].has_logprob);
  EXPECT_EQ(logprobs[1].chosen.logprob, -1.0f);
  EXPECT_EQ(logprobs[2].chosen.logprob, -2.0f);
  EXPECT_EQ(logprobs[3].chosen.bytes, "!");
}

TEST(GenerateText, EchoWithLogprobsOfASingleToken) {
  World world;
  auto sink = world.Start(TokenRequest({'H'}, {.echo = true, .logprobs = 0}));
  auto engine = world.engine.Next();
  engine->SayId('!', -3.0f);
  engine->End(EngineReason::kLength);
  sink->AwaitEnd();
  EXPECT_EQ(sink->text(), "H!");
  EXPECT_EQ(sink->logprobs().size(), 2u);
}

// Tokens race with the pool: no wake-up may be lost, no two runs overlap.
TEST(GenerateText, ManyStreamsAtOnceStayInOrder) {
  World world(/*threads=*/3, /*max_queued=*/1000);
  constexpr int kStreams = 24;
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(i) + "\xC3\xA4";

  std::vector<std::shared_ptr<RecordingSink>> sinks;
  std::vector<std::stop_source> clients(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    sinks.push_back(world.Start(TextRequest("Hi"), clients[i].get_token()));
  }
  std::vector<std::shared_ptr<Submission>> engines;
  for (int i = 0; i < kStreams; ++i) engines.push_back(world.engine.Next());
  std::vector<std::thread> speakers;
  for (int t = 0; t < 3; ++t) {
    speakers.emplace_back([&, t] {
      for (int i = t; i < kStreams; i += 3) {
        engines[i]->Say(text);
        engines[i]->End(EngineReason::kLength);
      }
    });
  }
  // Late stops race with the ends; each stream still ends once, complete.
  for (auto& client : clients) client.request_stop();
  for (auto& speaker : speakers) speaker.join();
  for (auto& sink : sinks) {
    const GenerateEnd end = sink->AwaitEnd();
    EXPECT_TRUE(end.status.ok()) << "the engine did not heed the stop";
    EXPECT_EQ(sink->text(), text);
  }
}

}  // namespace
}  // namespace millrace::handlers
