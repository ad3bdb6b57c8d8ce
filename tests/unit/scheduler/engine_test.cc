// The engine's promises to one request: what it gets, when it ends, what is
// refused. Crowds are in engine_crowd_test.cc, endings in engine_end_test.cc.
#include "scheduler/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/trace.h"
#include "tests/unit/scheduler/engine_fixture.h"

namespace millrace::scheduler {
namespace {

using ::testing::HasSubstr;

TEST(Engine, AnswersAsTheModelDoes) {
  auto engine = MakeEngine({});
  Reader reader(MustSubmit(*engine, MakeTask({1, 2, 3}, 10)));
  ASSERT_TRUE(reader.AwaitEnd());
  EXPECT_EQ(reader.ids(), FakeAnswer({1, 2, 3}, 10, {}));
  EXPECT_TRUE(reader.end->status.ok());
  EXPECT_EQ(reader.end->reason, FinishReason::kLength);
  EXPECT_EQ(reader.end->prompt_tokens, 3);
  EXPECT_EQ(reader.end->output_tokens, 10);
  ExpectAllPagesBack(*engine);
}

TEST(Engine, FillsTheContextToItsLastToken) {
  auto engine = MakeEngine({.num_pages = 4, .max_context = 250});
  const std::vector<int32_t> prompt(200, 7);
  Reader reader(MustSubmit(*engine, MakeTask(prompt, 50)));
  ASSERT_TRUE(reader.AwaitEnd());
  EXPECT_EQ(reader.ids(), FakeAnswer(prompt, 50, {}));
}

TEST(Engine, StopIdEndsTheAnswerAndIsItsLastToken) {
  const std::vector<int32_t> free_answer = FakeAnswer({5}, 20, {});
  GenerateTask task = MakeTask({5}, 20);
  task.sampling.stop_ids = {free_answer[4]};
  const auto expected = FakeAnswer({5}, 20, task.sampling);
  auto engine = MakeEngine({});
  Reader reader(MustSubmit(*engine, std::move(task)));
  ASSERT_TRUE(reader.AwaitEnd());
  EXPECT_EQ(reader.ids(), expected);
  EXPECT_EQ(reader.ids().back(), free_answer[4]);
  EXPECT_EQ(reader.end->reason, FinishReason::kStop);
}

TEST(Engine, ScoresPromptTokensAndReportsAlternatives) {
  GenerateTask task = MakeTask({4, 5, 6, 7}, 2);
  task.prompt_logprobs = true;
  task.sampling.logprobs = true;
  task.sampling.top_logprobs = 3;
  auto engine = MakeEngine({});
  Reader reader(MustSubmit(*engine, std::move(task)));
  ASSERT_TRUE(reader.AwaitEnd());
  const std::vector<int32_t> prompt = {4, 5, 6, 7};
  ASSERT_EQ(reader.prompt.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(reader.prompt[i].id, prompt[i + 1]);
    EXPECT_EQ(reader.prompt[i].logprob,
              FakeLogprob(std::span(prompt).first(i + 1), prompt[i + 1]));
    EXPECT_EQ(reader.prompt[i].top.size(), 3u);
  }
  ASSERT_EQ(reader.tokens.size(), 2u);
  EXPECT_EQ(reader.tokens[0].logprob, FakeLogprob(prompt, reader.ids()[0]));
  EXPECT_EQ(reader.tokens[1].top.size(), 3u);
}

TEST(Engine, RefusesWhatCanNeverFit) {
  auto engine = MakeEngine({.num_pages = 2, .max_context = 1024});
  // The pool holds 128 tokens: less than the model's context.
  EXPECT_EQ(engine->info().max_context, 128);
  auto stream = engine->Submit(*engine->Reserve(),
                               MakeTask(std::vector<int32_t>(100, 1), 29));
  ASSERT_FALSE(stream.ok());
  EXPECT_EQ(stream.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream.status().reason(), "context_length_exceeded");
  EXPECT_THAT(std::string(stream.status().message()),
              AllOf(HasSubstr("100"), HasSubstr("29"), HasSubstr("128")));

  Reader fits(MustSubmit(*engine, MakeTask(std::vector<int32_t>(100, 1), 28)));
  EXPECT_EQ(fits.EndCode(), StatusCode::kOk);
}

TEST(Engine, RefusesWhatTheRunnerMayNotSee) {
  auto engine = MakeEngine({});
  const auto refusal = [&](GenerateTask task) {
    return engine->Submit(*engine->Reserve(), std::move(task)).status();
  };
  EXPECT_EQ(refusal(MakeTask({}, 1)).field(), "prompt");
  EXPECT_EQ(refusal(MakeTask({1}, 0)).field(), "max_tokens");
  EXPECT_EQ(refusal(MakeTask({1}, -5)).field(), "max_tokens");
  EXPECT_EQ(refusal(MakeTask({1, kFakeVocab}, 1)).field(), "prompt");
  EXPECT_EQ(refusal(MakeTask({-1}, 1)).field(), "prompt");
  GenerateTask biased = MakeTask({1}, 1);
  biased.sampling.logit_bias = {{kFakeVocab, 1.0f}};
  EXPECT_EQ(refusal(std::move(biased)).field(), "logit_bias");
  GenerateTask stopped = MakeTask({1}, 1);
  stopped.sampling.stop_ids = {-1};
  EXPECT_EQ(refusal(std::move(stopped)).field(), "stop_token_ids");
  EXPECT_EQ(refusal(MakeTask({1}, std::numeric_limits<int32_t>::max())).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Submit(Reservation(), MakeTask({1}, 1)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(Engine, RefusedTaskGivesItsPlaceBack) {
  auto engine = MakeEngine({}, {.max_num_seqs = 1, .max_queue_size = 0});
  for (int i = 0; i < 3; ++i) {
    auto place = engine->Reserve();
    ASSERT_TRUE(place.ok()) << place.status().ToString();
    EXPECT_FALSE(engine->Submit(std::move(*place), MakeTask({}, 1)).ok());
  }
}

TEST(Engine, FullQueueIsAnsweredAtOnceAndReopensAsWorkEnds) {
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine =
      MakeEngine({.gate = gate}, {.max_num_seqs = 2, .max_queue_size = 3});
  std::vector<Reader> readers;
  for (int i = 0; i < 5; ++i) {
    readers.emplace_back(MustSubmit(*engine, MakeTask({i}, 3)));
  }
  gate->AwaitBlocked();
  const auto refused = engine->Reserve();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("queue is full ("));
  EXPECT_GE(refused.status().retry_after_ms(), 1'000);
  EXPECT_LE(refused.status().retry_after_ms(), 60'000);

  gate->Open();
  ASSERT_TRUE(readers[0].AwaitEnd());
  // The end is told after the place is free.
  EXPECT_TRUE(engine->Reserve().ok());
  for (Reader& reader : readers) EXPECT_EQ(reader.EndCode(), StatusCode::kOk);
}

TEST(Engine, LowerPriorityNumberRunsFirstThenArrival) {
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine = MakeEngine({.gate = gate}, {.max_num_seqs = 1});
  Reader first(MustSubmit(*engine, MakeTask({1}, 1)));
  gate->AwaitBlocked();
  const std::vector<int32_t> priorities = {5, 0, 5, -1};
  std::vector<std::shared_ptr<Trace>> traces;
  std::vector<Reader> readers;
  for (const int32_t priority : priorities) {
    GenerateTask task = MakeTask({2}, 1);
    task.priority = priority;
    task.trace = traces.emplace_back(std::make_shared<Trace>());
    readers.emplace_back(MustSubmit(*engine, std::move(task)));
  }
  gate->Open();
  for (Reader& reader : readers) ASSERT_TRUE(reader.AwaitEnd());
  const auto scheduled = [&](int i) {
    return traces[i]->stamps[static_cast<size_t>(Stage::kScheduled)].load();
  };
  EXPECT_LT(scheduled(3), scheduled(1));
  EXPECT_LT(scheduled(1), scheduled(0));
  EXPECT_LT(scheduled(0), scheduled(2));
}

TEST(Engine, StampsTheStagesOfARequestInOrder) {
  auto trace = std::make_shared<Trace>();
  GenerateTask task = MakeTask({1}, 2);
  task.trace = trace;
  auto engine = MakeEngine({});
  Reader reader(MustSubmit(*engine, std::move(task)));
  ASSERT_TRUE(reader.AwaitEnd());
  EXPECT_GE(trace->Seconds(Stage::kSubmitted, Stage::kScheduled), 0);
  EXPECT_GE(trace->Seconds(Stage::kScheduled, Stage::kFirstToken), 0);
}

TEST(Engine, SlowReaderGetsLargerChunksAndHoldsUpNobody) {
  auto engine = MakeEngine({});
  auto slow = MustSubmit(*engine, MakeTask({1}, 200));
  Reader quick(MustSubmit(*engine, MakeTask({2}, 300)));
  EXPECT_EQ(quick.EndCode(), StatusCode::kOk);
  const TokenStream::Taken all = slow->Take();
  EXPECT_EQ(all.tokens.size(), 200u);
  ASSERT_TRUE(all.end.has_value());
  EXPECT_TRUE(all.end->status.ok());
}

std::vector<int32_t> LongPrompt(int32_t length, int32_t last) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back(i % kFakeVocab);
  prompt.back() = last;
  return prompt;
}

TEST(Engine, PromptsThatBeginAlikeStartBehindWhatIsCached) {
  MetricRegistry registry;
  auto engine = MakeEngine({}, {}, &registry);
  Reader first(MustSubmit(*engine, MakeTask(LongPrompt(300, 1), 4)));
  ASSERT_TRUE(first.AwaitEnd());
  EXPECT_EQ(first.end->cached_tokens, 0);
  EXPECT_EQ(engine->stats().pages_cached, 4);
  Reader second(MustSubmit(*engine, MakeTask(LongPrompt(300, 2), 4)));
  ASSERT_TRUE(second.AwaitEnd());
  EXPECT_EQ(second.end->cached_tokens, 256);
  EXPECT_EQ(second.ids(), FakeAnswer(LongPrompt(300, 2), 4, {}));
  // The last token is computed even if its page is cached.
  Reader third(MustSubmit(*engine, MakeTask(LongPrompt(256, 255), 4)));
  ASSERT_TRUE(third.AwaitEnd());
  EXPECT_EQ(third.end->cached_tokens, 192);
  const std::string text = registry.Text();
  const std::string labels = "{model=\"fake\",version=\"1\"} ";
  EXPECT_THAT(text, HasSubstr("millrace_prefix_cache_queries_total" + labels +
                              "856\n"));
  EXPECT_THAT(text, HasSubstr("millrace_computed_prompt_tokens_total" + labels +
                              "408\n"));
  EXPECT_THAT(text,
              HasSubstr("millrace_prefix_cache_hits_total" + labels + "448\n"));
  ExpectAllPagesBack(*engine);
}

TEST(Engine, TellsHowFarAPromptIsBehindEachOfItsSteps) {
  auto engine = MakeEngine({}, {.max_num_batched_tokens = 128});
  GenerateTask task = MakeTask(LongPrompt(300, 1), 2);
  task.prompt_progress = true;
  const auto told = [&](const GenerateTask& asked) {
    Reader reader(MustSubmit(*engine, asked));
    EXPECT_TRUE(reader.AwaitEnd());
    std::vector<int32_t> processed;
    double seconds = 0;
    for (const PromptProgress& each : reader.progress) {
      EXPECT_EQ(each.total, 300);
      EXPECT_EQ(each.cached, reader.end->cached_tokens);
      EXPECT_GE(each.seconds, seconds);
      seconds = each.seconds;
      processed.push_back(each.processed);
    }
    return processed;
  };
  EXPECT_THAT(told(task), testing::ElementsAre(0, 128, 256, 300));
  // What the cache has is told first.
  EXPECT_THAT(told(task), testing::ElementsAre(256, 300));
  task.prompt_progress = false;
  EXPECT_THAT(told(task), testing::IsEmpty());
}

TEST(Engine, CompletionsAreNotLentToPromptsThatAreComputedInAnotherWay) {
  struct Case {
    bool depends_on_role;
    bool share;
    int32_t cached;  // tokens found by the next turn
  };
  for (const Case& c : {Case{false, false, 256}, Case{true, false, 64},
                        Case{true, true, 256}}) {
    auto engine = MakeEngine(
        {.kv_depends_on_role = c.depends_on_role, .checks_roles = !c.share},
        {.prefix_cache_share_generated = c.share});
    Reader first(MustSubmit(*engine, MakeTask(LongPrompt(100, 1), 200)));
    ASSERT_TRUE(first.AwaitEnd());
    std::vector<int32_t> prompt = LongPrompt(100, 1);
    const auto completion = first.ids();
    prompt.insert(prompt.end(), completion.begin(), completion.end());
    prompt.push_back(7);
    Reader next(MustSubmit(*engine, MakeTask(prompt, 5)));
    ASSERT_TRUE(next.AwaitEnd());
    EXPECT_EQ(next.end->cached_tokens, c.cached);
    // The fake runner looks at the role of everything it sees.
    EXPECT_EQ(next.ids(), FakeAnswer(prompt, 5, {}));
    ExpectAllPagesBack(*engine);
  }
}

TEST(Engine, PreemptedSequencesFindTheirOwnPagesWhateverTheRoles) {
  auto engine = MakeEngine({.num_pages = 8, .kv_depends_on_role = true});
  std::vector<Reader> readers;
  for (int32_t i = 0; i < 4; ++i) {
    readers.emplace_back(
        MustSubmit(*engine, MakeTask(LongPrompt(70, 500 + i), 150)));
  }
  for (int32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(readers[i].AwaitEnd());
    EXPECT_EQ(readers[i].ids(), FakeAnswer(LongPrompt(70, 500 + i), 150, {}));
  }
  EXPECT_GT(engine->stats().preemptions, 0);
  ExpectAllPagesBack(*engine);
}

TEST(Engine, ScoredPromptsAreComputedWhole) {
  auto engine = MakeEngine({});
  for (int i = 0; i < 2; ++i) {
    GenerateTask task = MakeTask(LongPrompt(200, 1), 2);
    task.prompt_logprobs = true;
    Reader reader(MustSubmit(*engine, std::move(task)));
    ASSERT_TRUE(reader.AwaitEnd());
    EXPECT_EQ(reader.end->cached_tokens, 0);
    EXPECT_EQ(reader.prompt.size(), 199u);
  }
}

TEST(Engine, WithoutPrefixCachingNothingIsKept) {
  auto engine = MakeEngine({}, {.enable_prefix_caching = false});
  for (int i = 0; i < 2; ++i) {
    Reader reader(MustSubmit(*engine, MakeTask(LongPrompt(300, 1), 4)));
    ASSERT_TRUE(reader.AwaitEnd());
    EXPECT_EQ(reader.end->cached_tokens, 0);
    EXPECT_EQ(engine->stats().pages_cached, 0);
  }
}

TEST(Engine, PromptsThatArriveTogetherComputeTheirBeginningOnce) {
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  // A step computes 100 tokens: the first prompt takes four.
  auto engine = MakeEngine({.max_tokens = 100, .gate = gate});
  std::vector<Reader> readers;
  readers.emplace_back(MustSubmit(*engine, MakeTask({1}, 1)));
  gate->AwaitBlocked();
  for (int32_t i = 0; i < 4; ++i) {
    readers.emplace_back(
        MustSubmit(*engine, MakeTask(LongPrompt(330, 400 + i), 3)));
  }
  gate->Open();
  for (Reader& reader : readers) ASSERT_TRUE(reader.AwaitEnd());
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(readers[i + 1].ids(),
              FakeAnswer(LongPrompt(330, 400 + i), 3, {}));
    EXPECT_EQ(readers[i + 1].end->cached_tokens, i == 0 ? 0 : 320);
  }
}

TEST(Engine, FamilyComputesItsPromptOnce) {
  for (const bool caching : {true, false}) {
    auto gate = std::make_shared<StepGate>();
    gate->Close();
    auto engine =
        MakeEngine({.gate = gate}, {.enable_prefix_caching = caching});
    Reader before(MustSubmit(*engine, MakeTask({1}, 1)));
    gate->AwaitBlocked();
    const auto fork_group = std::make_shared<ForkGroup>();
    const auto prompt = LongPrompt(150, 1);
    std::vector<Reader> readers;
    for (uint64_t i = 0; i < 5; ++i) {
      GenerateTask task = MakeTask(prompt, 80);
      task.fork_group = fork_group;
      task.sampling.seed = i;
      readers.emplace_back(MustSubmit(*engine, std::move(task)));
    }
    gate->Open();
    for (uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(readers[i].AwaitEnd());
      models::SamplingParams sampling;
      sampling.seed = i;
      EXPECT_EQ(readers[i].ids(), FakeAnswer(prompt, 80, sampling));
      EXPECT_EQ(readers[i].end->cached_tokens, i == 0 ? 0 : 149);
    }
    ExpectAllPagesBack(*engine);
  }
}

TEST(Engine, CountsWhatItDoes) {
  MetricRegistry registry;
  auto engine =
      MakeEngine({}, {.max_num_seqs = 1, .max_queue_size = 0}, &registry);
  Reader reader(MustSubmit(*engine, MakeTask({1, 2, 3}, 4)));
  ASSERT_TRUE(reader.AwaitEnd());
  {
    auto place = engine->Reserve();
    EXPECT_FALSE(engine->Reserve().ok());
  }
  const std::string text = registry.Text();
  const std::string labels = "{model=\"fake\",version=\"1\"} ";
  EXPECT_THAT(text, HasSubstr("millrace_prompt_tokens_total" + labels + "3\n"));
  EXPECT_THAT(text,
              HasSubstr("millrace_generation_tokens_total" + labels + "4\n"));
  EXPECT_THAT(text, HasSubstr("millrace_requests_running" + labels + "0\n"));
  EXPECT_THAT(text, HasSubstr("millrace_requests_waiting" + labels + "0\n"));
  EXPECT_THAT(text, HasSubstr("millrace_preemptions_total" + labels + "0\n"));
  EXPECT_THAT(text, HasSubstr("millrace_batch_size_count" + labels + "4\n"));
  EXPECT_THAT(text, HasSubstr("millrace_time_to_first_token_seconds_count" +
                              labels + "1\n"));
  EXPECT_THAT(text, HasSubstr("millrace_inter_token_latency_seconds_count" +
                              labels + "3\n"));
  EXPECT_THAT(text,
              HasSubstr("millrace_queue_time_seconds_count" + labels + "1\n"));
  EXPECT_THAT(text, HasSubstr("millrace_admission_refusals_total{model=\"fake\""
                              ",reason=\"queue_full\",version=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("millrace_kv_pages{model=\"fake\",state=\"free\","
                              "version=\"1\"} 64\n"));
}

TEST(Engine, VersionsThatServeTogetherAreCountedApart) {
  MetricRegistry registry;
  auto first = MakeEngine({}, {}, &registry);
  auto second = MakeEngine({}, {.version = "2"}, &registry);
  Reader reader(MustSubmit(*second, MakeTask({1, 2, 3}, 4)));
  ASSERT_TRUE(reader.AwaitEnd());
  const std::string text = registry.Text();
  for (const char* line :
       {"millrace_generation_tokens_total{model=\"fake\",version=\"1\"} 0\n",
        "millrace_generation_tokens_total{model=\"fake\",version=\"2\"} 4\n",
        "millrace_kv_pages{model=\"fake\",state=\"free\",version=\"2\"} "}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Engine, ARequestThatWasRefusedInPartIsCountedWithItsLast) {
  MetricRegistry registry;
  auto engine = MakeEngine({}, {}, &registry);
  const std::string line =
      "millrace_request_longest_completion_tokens_sum"
      "{model=\"fake\",version=\"1\"} ";
  auto group = std::make_shared<ForkGroup>(ForkGroup{.num_left = 3});
  std::vector<Reader> readers;
  for (const int32_t tokens : {9, 4}) {
    GenerateTask task = MakeTask({1, 2, 3}, tokens);
    task.fork_group = group;
    readers.emplace_back(MustSubmit(*engine, std::move(task)));
  }
  group.reset();  // the third was refused
  for (Reader& reader : readers) ASSERT_TRUE(reader.AwaitEnd());
  EXPECT_THAT(registry.Text(), HasSubstr(line + "9\n"));
}

TEST(Engine, ARequestsLongestCompletionIsCountedOnce) {
  MetricRegistry registry;
  auto engine = MakeEngine({}, {}, &registry);
  const auto counted = [&](const std::string& what) {
    const std::string text = registry.Text();
    const std::string line =
        "millrace_request_" + what + "{model=\"fake\",version=\"1\"} ";
    const size_t at = text.find(line);
    return at == std::string::npos ? -1.0
                                   : std::stod(text.substr(at + line.size()));
  };
  const auto group = std::make_shared<ForkGroup>(ForkGroup{.num_left = 3});
  for (const int32_t tokens : {4, 9, 2}) {
    EXPECT_EQ(counted("longest_completion_tokens_count"), 0);
    GenerateTask task = MakeTask({1, 2, 3}, tokens);
    task.fork_group = group;
    ASSERT_TRUE(Reader(MustSubmit(*engine, std::move(task))).AwaitEnd());
  }
  EXPECT_EQ(counted("longest_completion_tokens_count"), 1);
  EXPECT_EQ(counted("longest_completion_tokens_sum"), 9);
  ASSERT_TRUE(Reader(MustSubmit(*engine, MakeTask({7}, 5))).AwaitEnd());
  EXPECT_EQ(counted("longest_completion_tokens_count"), 2);
  EXPECT_EQ(counted("longest_completion_tokens_sum"), 14);
  EXPECT_EQ(counted("generation_tokens_sum"), 4 + 9 + 2 + 5);
  EXPECT_EQ(counted("time_per_output_token_seconds_count"), 4);
  EXPECT_EQ(counted("computed_prompt_tokens_count"), 4);
}

}  // namespace
}  // namespace millrace::scheduler
