// From request to engine: prompts, defaults, sampling; and the short calls.
#include "handlers/generate.h"
#include "models/llm/dry.h"

#include <gtest/gtest.h>

#include "tests/unit/handlers/fakes.h"

namespace millrace::handlers {
namespace {

using scheduler::FinishReason;
using Ids = std::vector<int32_t>;

Ids Bytes(std::string_view text) {
  Ids ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

Ids Joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(Generate, TextArrivesInOrderAndEndsOnce) {
  World world;
  auto sink = world.Start(TextRequest("Hi"));
  auto engine = world.engine.Next();
  engine->Say("one ");
  sink->AwaitText("one ");
  engine->Say("two");
  sink->AwaitText("one two");
  engine->End(FinishReason::kLength, {}, /*cached_tokens=*/2);
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.reason, handlers::FinishReason::kLength);
  EXPECT_EQ(end.stop_reason.index(), 0u);
  EXPECT_EQ(end.usage.prompt_tokens, 3) << "BOS, H, i";
  EXPECT_EQ(end.usage.completion_tokens, 7);
  EXPECT_EQ(end.usage.cached_tokens, 2);
  EXPECT_EQ(sink->places_at_end(), 0);
  int32_t counted = 0;
  for (const OutputDelta& chunk : sink->chunks()) counted += chunk.num_tokens;
  EXPECT_EQ(counted, 7);
}

TEST(Generate, ManyTokensInOneGoBecomeFewChunks) {
  World world;
  auto sink = world.Start(TextRequest("Hi"));
  auto engine = world.engine.Next();
  const std::string text(1000, 'x');
  engine->Say(text);
  engine->End(FinishReason::kLength);
  sink->AwaitEnd();
  EXPECT_EQ(sink->text(), text);
}

TEST(Generate, RawPromptMayHoldSpecialTokensAndGetsBos) {
  World world;
  auto sink = world.Start(TextRequest("a<|im_end|>b"));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.prompt, (Ids{kBos, 'a', kImEnd, 'b'}));
  engine->End(FinishReason::kLength);
  sink->AwaitEnd();
}

TEST(Generate, UserTextOfAChatNeverMakesSpecialTokens) {
  World world;
  auto sink = world.Start(ChatRequest("<|im_end|>"));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.prompt, Joined({{kImStart},
                                         Bytes("u:<|im_end|>"),
                                         {kImEnd, kImStart},
                                         Bytes("a:")}));
  engine->End(FinishReason::kLength);
  sink->AwaitEnd();
}

TEST(Generate, TokenPromptPassesAsItIs) {
  World world;
  auto sink = world.Start(TokenRequest({kImEnd, 5, 0}));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.prompt, (Ids{kImEnd, 5, 0}));
  engine->End(FinishReason::kLength);
  sink->AwaitEnd();
}

TEST(Generate, MaxTokensDefaultsToSixteenOrTheRestOfTheContext) {
  World world;
  const auto limit = [&](GenerateRequest request) {
    auto sink = world.Start(std::move(request));
    auto engine = world.engine.Next();
    engine->End(FinishReason::kLength);
    sink->AwaitEnd();
    return engine->task.max_tokens;
  };
  EXPECT_EQ(limit(TokenRequest({1, 2})), 16);
  EXPECT_EQ(limit(TokenRequest(Ids(kMaxContext - 3, 1))), 3);
  EXPECT_EQ(limit(ChatRequest("x")), kMaxContext - 1 - 3 - 2 - 2);
  EXPECT_EQ(limit(TokenRequest({1, 2}, {.max_tokens = 62})), 62);
}

TEST(Generate, MaxTokensMayBeClippedToTheContext) {
  World world;
  const auto limit = [&](std::optional<int64_t> asked) {
    GenerateOptions options;
    options.max_tokens = asked;
    options.clip_to_context = true;
    auto sink = world.Start(TokenRequest({1, 2, 3}, options));
    const auto engine = world.engine.Next();
    engine->End(scheduler::FinishReason::kLength);
    sink->AwaitEnd();
    return engine->task.max_tokens;
  };
  EXPECT_EQ(limit(5), 5);
  EXPECT_EQ(limit(1000), kMaxContext - 3);
  EXPECT_EQ(limit({}), kMaxContext - 3);
}

TEST(Generate, SamplingReachesTheEngine) {
  World world;
  GenerateOptions options;
  options.max_tokens = 20;
  options.min_tokens = 2;
  options.temperature = 0.5;
  options.top_k = -1;
  options.top_p = 0.75;
  options.min_p = 0.25;
  options.repetition_penalty = 1.5;
  options.presence_penalty = -1;
  options.frequency_penalty = 2;
  options.seed = 99;
  options.logit_bias = {{7, 1.5f}};
  options.allowed_token_ids = {5, 6};
  options.bad_words = {" ab"};
  options.suppress_tokens = {8, 9};
  options.no_repeat_ngram_size = 3;
  options.stop_token_ids = {10};
  options.logprobs = 3;
  options.priority = -4;
  GenerateRequest request = TextRequest("Hi", options);
  request.deadline = Clock::Real().Now() + std::chrono::hours(1);
  const auto deadline = request.deadline;
  auto sink = world.Start(request);
  auto engine = world.engine.Next();
  const models::SamplingParams& sampling = engine->task.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.top_p, 0.75f);
  EXPECT_EQ(sampling.min_p, 0.25f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.presence_penalty, -1.0f);
  EXPECT_EQ(sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(sampling.seed, 99u);
  EXPECT_EQ(sampling.logit_bias, options.logit_bias);
  EXPECT_EQ(sampling.allowed_token_ids, (Ids{5, 6}));
  // Behind a space it is longer, so that it is named by its end.
  EXPECT_EQ(sampling.bad_words, (std::vector<Ids>{{'a', 'b'}}));
  EXPECT_EQ(sampling.suppress_tokens, (Ids{8, 9}));
  EXPECT_EQ(sampling.no_repeat_ngram_size, 3);
  EXPECT_EQ(sampling.stop_ids, (Ids{10, kImEnd}));
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_TRUE(sampling.logprobs);
  EXPECT_EQ(sampling.top_logprobs, 3);
  EXPECT_EQ(engine->task.priority, -4);
  EXPECT_EQ(engine->task.deadline, deadline);
  EXPECT_FALSE(engine->task.prompt_logprobs);
  engine->End(FinishReason::kLength);
  sink->AwaitEnd();
}

TEST(Generate, SamplersOfLlamaCppReachTheEngine) {
  World world;
  const auto sampling = [&](GenerateOptions options) {
    auto sink = world.Start(TextRequest("Hi", options));
    auto engine = world.engine.Next();
    engine->End(FinishReason::kLength);
    sink->AwaitEnd();
    return engine->task.sampling;
  };
  const models::SamplingParams off = sampling({});
  EXPECT_EQ(off.typical_p, 1.0f);
  EXPECT_EQ(off.top_n_sigma, 0.0f);
  EXPECT_EQ(off.xtc_probability, 0.0f);
  EXPECT_EQ(off.dynatemp_range, 0.0f);
  EXPECT_FALSE(off.mirostat.on);
  EXPECT_EQ(off.penalty_last_n, 0);
  EXPECT_TRUE(off.order.empty());
  EXPECT_EQ(off.dry.multiplier, 0.0f);
  EXPECT_EQ(off.dry.breakers, nullptr);

  GenerateOptions options;
  options.typical_p = 0.5;
  options.top_n_sigma = 1.5;
  options.xtc_probability = 0.25;
  options.xtc_threshold = 0.125;
  options.dynatemp_range = 0.5;
  options.dynatemp_exponent = 2;
  options.mirostat = 1;
  options.mirostat_tau = 3;
  options.mirostat_eta = 0.5;
  options.dry_multiplier = 0.75;
  options.dry_base = 0.5;  // below 1: the usual one
  options.dry_allowed_length = 4;
  options.dry_penalty_last_n = 64;
  options.min_keep = 3;
  options.repeat_last_n = 64;
  options.sampler_order = {models::DrawStage::kXtc, models::DrawStage::kTopK};
  options.dry_first = true;
  const models::SamplingParams on = sampling(options);
  EXPECT_EQ(on.typical_p, 0.5f);
  EXPECT_EQ(on.top_n_sigma, 1.5f);
  EXPECT_EQ(on.xtc_probability, 0.25f);
  EXPECT_EQ(on.xtc_threshold, 0.125f);
  EXPECT_EQ(on.dynatemp_range, 0.5f);
  EXPECT_EQ(on.dynatemp_exponent, 2.0f);
  EXPECT_TRUE(on.mirostat.on);
  EXPECT_EQ(on.mirostat.version, 1);
  EXPECT_EQ(on.mirostat.tau, 3.0f);
  EXPECT_EQ(on.mirostat.eta, 0.5f);
  EXPECT_EQ(on.dry.multiplier, 0.75f);
  EXPECT_EQ(on.dry.base, 1.75f);
  EXPECT_EQ(on.dry.allowed_length, 4);
  EXPECT_EQ(on.dry.last_n, 64);
  EXPECT_EQ(on.min_keep, 3);
  EXPECT_EQ(on.penalty_last_n, 64);
  EXPECT_EQ(on.order, options.sampler_order);
  EXPECT_TRUE(on.dry_first);
  options.repeat_last_n = -1;  // llama.cpp's rule, for all of the text
  EXPECT_EQ(sampling(options).penalty_last_n, INT32_MAX);
  // A token is a byte here.
  ASSERT_NE(on.dry.breakers, nullptr);
  using Tails = std::vector<Ids>;
  EXPECT_EQ(on.dry.breakers->tails.at('\n'), Tails{{}});
  EXPECT_EQ(on.dry.breakers->tails.at('*'), Tails{{}});
  EXPECT_FALSE(on.dry.breakers->tails.contains('a'));

  options.dry_sequence_breakers = {"ab", "a", "xyz"};
  const auto breakers = sampling(options).dry.breakers;
  EXPECT_EQ(breakers->tails.at('a'), (Tails{{'b'}, {}}));
  EXPECT_EQ(breakers->tails.at('x'), (Tails{{'y', 'z'}}));
  EXPECT_FALSE(breakers->tails.contains('y'));
}

TEST(Generate, SamplingLeftOutIsTheModelsOwnDefault) {
  World world;
  world.parts.defaults = {.temperature = 0.25, .top_k = 20, .min_p = 0.5};
  world.handler = MakeGenerateHandler(world.parts);
  const auto sampling = [&](GenerateOptions options) {
    auto sink = world.Start(TextRequest("Hi", options));
    auto engine = world.engine.Next();
    engine->End(FinishReason::kLength);
    sink->AwaitEnd();
    return engine->task.sampling;
  };
  const models::SamplingParams left_out = sampling({});
  EXPECT_EQ(left_out.temperature, 0.25f);
  EXPECT_EQ(left_out.top_k, 20);
  EXPECT_EQ(left_out.min_p, 0.5f);
  EXPECT_EQ(left_out.top_p, 1.0f);
  EXPECT_EQ(left_out.repetition_penalty, 1.0f);
  const models::SamplingParams asked =
      sampling({.temperature = 0, .top_k = 0, .top_p = 0.5, .min_p = 0});
  EXPECT_EQ(asked.temperature, 0.0f);
  EXPECT_EQ(asked.top_k, 0);
  EXPECT_EQ(asked.min_p, 0.0f);
  EXPECT_EQ(asked.top_p, 0.5f);
}

TEST(Generate, IgnoreEosLeavesOnlyTheClientsStopIds) {
  World world;
  auto sink = world.Start(
      TextRequest("Hi", {.stop_token_ids = {10}, .ignore_eos = true}));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.sampling.stop_ids, Ids{10});
  engine->SayId(kImEnd);
  engine->Say("x");
  engine->End(FinishReason::kLength);
  EXPECT_EQ(sink->AwaitEnd().reason, handlers::FinishReason::kLength);
  EXPECT_EQ(sink->text(), "x");
}

TEST(Generate, TellsHowFarThePromptIsWhenAsked) {
  World world;
  auto sink = world.Start(TextRequest("Hi", {.return_progress = true}));
  auto engine = world.engine.Next();
  EXPECT_TRUE(engine->task.prompt_progress);
  engine->stream->PushProgress({.total = 3, .processed = 0});
  engine->stream->PushProgress({.total = 3, .processed = 3});
  engine->Say("x");
  engine->End(FinishReason::kLength);
  sink->AwaitEnd();
  ASSERT_EQ(sink->progress().size(), 2u);
  EXPECT_EQ(sink->progress()[1].processed, 3);
  sink = world.Start(TextRequest("Hi"));
  engine = world.engine.Next();
  EXPECT_FALSE(engine->task.prompt_progress);
  engine->End(FinishReason::kLength);
  sink->AwaitEnd();
}

std::vector<std::shared_ptr<RecordingSink>> StartSiblings(
    World& world, int n, GenerateOptions options = {}) {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < n; ++i) {
    sinks.push_back(std::make_shared<RecordingSink>(&world.engine));
  }
  options.n = n;
  world.handler->StartSiblings(TextRequest("Hi", std::move(options)),
                               {sinks.begin(), sinks.end()}, {});
  return sinks;
}

TEST(Generate, FamilySharesThePromptAndCountsSeedsUp) {
  World world;
  auto sinks = StartSiblings(world, 3, {.seed = 40});
  std::vector<std::shared_ptr<Submission>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(world.engine.Next());
  EXPECT_EQ(world.engine.places(), 3);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tasks[i]->task.prompt, tasks[0]->task.prompt);
    EXPECT_EQ(tasks[i]->task.sampling.seed, 40 + i);
    EXPECT_NE(tasks[i]->task.fork_group, nullptr);
    EXPECT_EQ(tasks[i]->task.fork_group, tasks[0]->task.fork_group);
  }
  // Each ends in its own time.
  tasks[1]->Say("b");
  tasks[1]->End(FinishReason::kLength);
  EXPECT_TRUE(sinks[1]->AwaitEnd().status.ok());
  EXPECT_EQ(sinks[1]->text(), "b");
  EXPECT_EQ(world.engine.places(), 2);
  tasks[2]->Say("c");
  tasks[0]->Say("a");
  tasks[2]->End(FinishReason::kStop);
  tasks[0]->End(FinishReason::kLength);
  EXPECT_EQ(sinks[2]->AwaitEnd().usage.prompt_tokens, 3);
  EXPECT_EQ(sinks[0]->AwaitEnd().usage.completion_tokens, 1);
  EXPECT_EQ(sinks[0]->text(), "a");
  EXPECT_EQ(sinks[2]->text(), "c");
  EXPECT_EQ(world.engine.places(), 0);
}

TEST(Generate, FamilyIsRefusedAsAWhole) {
  World world;
  world.engine.reserve_status = ResourceExhausted("full");
  for (const auto& sink : StartSiblings(world, 3)) {
    EXPECT_EQ(sink->AwaitEnd().status.code(), StatusCode::kResourceExhausted);
  }
  world.engine.reserve_status = OkStatus();
  world.engine.submit_status = Unavailable("closing");
  for (const auto& sink : StartSiblings(world, 3)) {
    EXPECT_EQ(sink->AwaitEnd().status.code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(world.engine.places(), 0);
  for (const auto& sink : StartSiblings(world, kMaxSeqs + 1)) {
    EXPECT_EQ(sink->AwaitEnd().status.field(), "n");
  }
  EXPECT_EQ(world.engine.num_submitted(), 0u);
}

TEST(Generate, APredictionBecomesTokensAndItsCountsAreTold) {
  World world;
  auto sink = world.Start(
      ChatRequest("Hi", {.prediction = "a<|im_end|>", .stop = {"c"}}));
  auto engine = world.engine.Next();
  std::vector<int32_t> expected;  // never special tokens
  for (const char c : std::string("a<|im_end|>")) expected.push_back(c);
  EXPECT_EQ(engine->task.prediction, expected);
  engine->prediction = {.accepted = 7, .rejected = 3};
  engine->Say("abcdef");
  engine->End(FinishReason::kLength);
  const Usage usage = sink->AwaitEnd().usage;
  EXPECT_EQ(usage.completion_tokens, 3) << "the stop string is the third";
  EXPECT_EQ(usage.accepted_prediction_tokens, 3);
  EXPECT_EQ(usage.rejected_prediction_tokens, 3);
}

TEST(Generate, APredictionLongerThanTheContextIsRefused) {
  World world;
  for (const int length : {65, 10'000}) {
    auto sink = world.Start(ChatRequest(
        "Hi", {.prediction = std::string(static_cast<size_t>(length), 'x')}));
    const Status status = sink->AwaitEnd().status;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), "prediction.content");
  }
  EXPECT_EQ(world.engine.num_submitted(), 0u);
}

TEST(Generate, SeedIsDrawnWhenAbsent) {
  World world;
  std::vector<uint64_t> seeds;
  for (int i = 0; i < 2; ++i) {
    auto sink = world.Start(TextRequest("Hi"));
    auto engine = world.engine.Next();
    seeds.push_back(engine->task.sampling.seed);
    engine->End(FinishReason::kLength);
    sink->AwaitEnd();
  }
  EXPECT_NE(seeds[0], seeds[1]);
}

TEST(Generate, TokenizeAndBack) {
  World world;
  const auto text = world.handler->Tokenize("a<s>", true, true);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->ids, (Ids{kBos, 'a', kBos}));
  EXPECT_EQ(text->pieces, (std::vector<std::string>{"<s>", "a", "<s>"}));
  EXPECT_EQ(world.handler->Tokenize("a<s>", false, false)->ids, Bytes("a<s>"));
  EXPECT_EQ(world.handler->Detokenize(text->ids).value(), "<s>a<s>");
  EXPECT_EQ(world.handler->Detokenize({0xC3}).value(), "\xEF\xBF\xBD");
  const Status bad = world.handler->Detokenize({1, kVocabSize}).status();
  EXPECT_EQ(bad.message(),
            "tokens[1] is token 259 but model 'tiny' has tokens 0 to 258");
  EXPECT_EQ(bad.field(), "tokens");
}

TEST(Generate, TemplatesAreAppliedAndTokenized) {
  World world;
  const ChatPrompt chat = Chat(R"([{"role": "u", "content": "<s>"}])");
  EXPECT_EQ(world.handler->ApplyTemplate(chat).value(),
            "<|im_start|>u:<s><|im_end|><|im_start|>a:");
  EXPECT_EQ(
      world.handler->TokenizeChat(chat)->ids,
      Joined({{kImStart}, Bytes("u:<s>"), {kImEnd, kImStart}, Bytes("a:")}));
}

}  // namespace
}  // namespace millrace::handlers
