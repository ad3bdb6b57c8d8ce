#include <gtest/gtest.h>

#include <cmath>

#include "loadtest/plan/fleet.h"
#include "loadtest/plan/server_model.h"
#include "tests/unit/loadtest/plan_servers.h"

namespace millrace::loadtest {
namespace {

// ---- closed forms -----------------------------------------------------------

TEST(Plan, OneSequenceTakesItsStepPrices) {
  const FleetResult result =
      RunFleet(Llm(), {{.arrival = 0, .input_tokens = 30, .output_tokens = 5}});
  EXPECT_EQ(result.ttft_ns.max(), 40 * kMs) << "10 + 30 x 1";
  EXPECT_EQ(result.latency_ns.max(), 88 * kMs) << "4 more tokens at 10 + 2";
  EXPECT_EQ(result.itl_ns.count(), 4);
  EXPECT_EQ(result.itl_ns.min(), 12 * kMs);
}

TEST(Plan, ALongPromptIsCutIntoSteps) {
  ServerModel model = Llm();
  model.max_num_batched_tokens = 8;
  const FleetResult result =
      RunFleet(model, {{.arrival = 0, .input_tokens = 20, .output_tokens = 1}});
  EXPECT_EQ(result.latency_ns.max(), 50 * kMs) << "3 x 10 + 20";
}

TEST(Plan, ARequestJoinsWhenTheStepUnderWayHasEnded) {
  // The first: 10 + 10 ms, then tokens at 32, 44, 56, ... The second comes at
  // 35 ms, is computed from 44 to 44 + 10 + 5 + 2 = 61 ms, and ends there.
  const FleetResult result =
      RunFleet(Llm(), {{.arrival = 0, .input_tokens = 10, .output_tokens = 6},
                       {.arrival = 35 * kMs, .input_tokens = 5}});
  EXPECT_EQ(result.ttft_ns.max(), 26 * kMs);
  EXPECT_EQ(result.itl_ns.max(), 17 * kMs);
  // Tokens of the first at 20, 32, 44, 61, 73 and 85 ms.
  EXPECT_EQ(result.latency_ns.max(), 85 * kMs);
  EXPECT_EQ(result.itl_ns.count(), 5);
}

TEST(Plan, KeysThatRowsLookAtMakeStepsLonger) {
  ServerModel model = Llm();
  model.attended_key_ns = 1 * kMs;
  const FleetResult result =
      RunFleet(model, {{.arrival = 0, .input_tokens = 3, .output_tokens = 3}});
  EXPECT_EQ(result.ttft_ns.max(), (10 + 3 + 1 + 2 + 3) * kMs);
  // Contexts of 4 and 5 tokens.
  EXPECT_EQ(result.latency_ns.max() - result.ttft_ns.max(),
            (12 + 4 + 12 + 5) * kMs);
}

TEST(Plan, PromptsLeaveRoomForDecodesUnderATarget) {
  ServerModel model = Llm();
  model.target_itl_ns = 40 * kMs;
  const FleetResult result = RunFleet(
      model, {{.arrival = 0, .input_tokens = 1, .output_tokens = 20},
              {.arrival = 12 * kMs, .input_tokens = 84, .output_tokens = 1}});
  // 12 ms for the decode and 28 prompt tokens: three steps.
  EXPECT_EQ(result.itl_ns.max(), 40 * kMs);
  model.target_itl_ns = 1 * kMs;
  EXPECT_EQ(model.MostPromptTokens(12 * kMs), 16) << "prompts go on";
}

TEST(Plan, WhatStepsDoNotTakeIsAddedToEachRequest) {
  ServerModel model = Llm();
  model.request_overhead_ns = 7 * kMs;
  const FleetResult result =
      RunFleet(model, {{.arrival = 0, .input_tokens = 30, .output_tokens = 5}});
  EXPECT_EQ(result.ttft_ns.max(), 47 * kMs);
  EXPECT_EQ(result.latency_ns.max(), 95 * kMs);
}

TEST(Plan, StepsOfPromptsCostMore) {
  ServerModel model = Llm();
  model.prompt_step_ns = 6 * kMs;
  const SimRequest later = {.arrival = 1 * kMs, .input_tokens = 10};
  const FleetResult result = RunFleet(
      model,
      {{.arrival = 0, .input_tokens = 30, .output_tokens = 5}, later, later});
  EXPECT_EQ(result.ttft_ns.min(), 46 * kMs) << "10 + 6 + 30";
  EXPECT_EQ(result.ttft_ns.max(), 83 * kMs)
      << "both from 46 to 84 ms: 10 + 6 + 20 + 2";
  EXPECT_EQ(result.latency_ns.max(), 120 * kMs) << "3 more tokens at 10 + 2";
}

TEST(Plan, DraftTokensGiveSeveralTokensAStep) {
  ServerModel model = Llm();
  model.tokens_per_step = {{1, 2.0}, {3, 1.0}};
  const FleetResult one =
      RunFleet(model, {{.arrival = 0, .input_tokens = 30, .output_tokens = 5}});
  EXPECT_EQ(one.latency_ns.max(), 68 * kMs) << "40, then 2 steps of 10 + 2 x 2";
  EXPECT_EQ(one.itl_ns.count(), 2) << "a gap a step";
  // Steps end at 20, 20 + 10 + 10 + 2 x 2 = 44 ms, where the first has 3 tokens
  // of 4 and the second 1, and at 44 + 10 + 2 x 2 x 1.5 = 60 ms; the second
  // takes one more of 14 ms.
  const SimRequest request = {
      .arrival = 0, .input_tokens = 10, .output_tokens = 4};
  const FleetResult two = RunFleet(model, {request, request});
  EXPECT_EQ(two.latency_ns.min(), 60 * kMs);
  EXPECT_EQ(two.latency_ns.max(), 74 * kMs);
}

TEST(Plan, WithDraftTokensAnEndedSequenceTakesItsOwnKeysWithIt) {
  ServerModel model;
  model.step_base_ns = 10 * kMs;
  model.attended_key_ns = 1 * kMs;
  model.tokens_per_step = {{1, 3.0}};
  // The first prompt: 10 + 1 key. The second one beside the first's decode:
  // 10 + 1 + 2. Then both decode with 2 + 3 and 2 keys and get three tokens
  // each, with which the second ends. The first goes on with 2 + 3 + 3 keys.
  const FleetResult result =
      RunFleet(model, {{.arrival = 0, .input_tokens = 1, .output_tokens = 10},
                       {.arrival = 0, .input_tokens = 1, .output_tokens = 4}});
  EXPECT_EQ(result.ttft_ns.max(), (11 + 13) * kMs);
  EXPECT_EQ(result.latency_ns.min(), (11 + 13 + 17) * kMs);
  EXPECT_EQ(result.latency_ns.max(), (11 + 13 + 17 + 18) * kMs);
}

TEST(Plan, MemoryLimitsWhatRunsAtOnce) {
  ServerModel model = Llm();
  model.kv_tokens = 20;
  const SimRequest request = {
      .arrival = 0, .input_tokens = 10, .output_tokens = 2};
  const FleetResult result = RunFleet(model, {request, request});
  EXPECT_EQ(result.latency_ns.max(), 2 * (20 + 12) * kMs) << "in turn";
  SimRequest large = request;
  large.input_tokens = 100;
  EXPECT_EQ(RunFleet(model, {large}).num_refused, 1);
}

TEST(Plan, WaitingTimesAreThoseOfTheQueueMD1) {
  const ServerModel model = Graph({{1, 10.0 * kMs}});
  for (const double load : {0.5, 0.8}) {
    const FleetResult result = RunFleet(model, Poisson(load * 100, 400'000));
    const double wait_ms = result.latency_ns.Mean() / kMs - 10;
    EXPECT_NEAR(wait_ms, 10 * load / (2 * (1 - load)), 0.03 * wait_ms) << load;
  }
}

TEST(Plan, ASaturatedServerDecodesItsMostSequences) {
  ServerModel model = Llm();
  model.prefill_token_ns = 0;
  model.max_num_seqs = 8;
  const auto requests =
      Poisson(100, 4000, {.input_tokens = 1, .output_tokens = 100});
  const FleetResult result = RunFleet(model, requests);
  const double rate = static_cast<double>(result.output_tokens) /
                      (static_cast<double>(result.end) * 1e-9);
  // 8 tokens every 10 + 8 x 2 ms.
  EXPECT_NEAR(rate, 8 / 0.026, 0.03 * 8 / 0.026);
}

TEST(Plan, ABatchIsClosedWhenItIsFullOrOld) {
  ServerModel model = Graph({{1, 10.0 * kMs}, {4, 22.0 * kMs}});
  model.max_batch_size = 4;
  model.max_queue_delay_ns = 5 * kMs;
  std::vector<SimRequest> four(4);
  EXPECT_EQ(RunFleet(model, four).latency_ns.min(), 22 * kMs) << "full at once";
  std::vector<SimRequest> two(2);
  EXPECT_EQ(RunFleet(model, two).latency_ns.max(), 19 * kMs)
      << "5 + 14 of 2 rows";
  std::vector<SimRequest> eight(8);
  EXPECT_EQ(RunFleet(model, eight).latency_ns.max(), 44 * kMs)
      << "one instance";
  model.instance_count = 2;
  EXPECT_EQ(RunFleet(model, eight).latency_ns.max(), 22 * kMs);
}

TEST(Plan, ALargerBatchIsNeverCheaperThanTheMeasuredOnes) {
  const ServerModel noisy =
      Graph({{1, 3.0 * kMs}, {2, 3.1 * kMs}, {4, 3.0 * kMs}, {8, 2.9 * kMs}});
  EXPECT_EQ(noisy.BatchNs(8), 2.9 * kMs);
  EXPECT_EQ(noisy.BatchNs(128), 3.1 * kMs) << "2.9 - 120 x 0.025";
  const ServerModel rising = Graph({{1, 2.0 * kMs}, {4, 5.0 * kMs}});
  EXPECT_EQ(rising.BatchNs(10), 11 * kMs) << "5 + 6 x 1";
}

// ---- fleets -----------------------------------------------------------------

TEST(Plan, LeastLoadedRoutingShortensTheTail) {
  auto requests = Poisson(60, 20'000, {.input_tokens = 5});
  for (size_t i = 0; i < requests.size(); i += 10) {
    requests[i].input_tokens = 300;
  }
  const auto p99 = [&](Routing routing) {
    return RunFleet(Llm(), requests, 5, routing).ttft_ns.Percentile(99);
  };
  EXPECT_LT(p99(Routing::kLeastLoaded), p99(Routing::kRoundRobin));
}

TEST(Plan, OfEqualReplicasTheOneThatWaitedLongestIsNext) {
  // The prefix of each group is in one of three caches when requests come in
  // turn, and would be in the first one alone otherwise.
  std::vector<SimRequest> requests;
  for (int i = 0; i < 30; ++i) {
    requests.push_back(
        {.arrival = i * kSecond, .input_tokens = 110, .group = 0});
  }
  FleetSpec fleet;
  fleet.model = Llm();
  fleet.replicas = 3;
  fleet.prefix_tokens = 100;
  fleet.routing = Routing::kLeastLoaded;
  const FleetResult result = Simulate(fleet, requests, {});
  EXPECT_NEAR(result.ttft_ns.Mean() / kMs, (3 * 120 + 27 * 20) / 30.0, 0.01);
}

TEST(Plan, PrefixRoutingComputesAPrefixOncePerGroup) {
  std::vector<SimRequest> requests;
  for (int i = 0; i < 400; ++i) {
    requests.push_back({.arrival = i * 500 * kMs,
                        .input_tokens = 110,
                        .group = (i * 7 + i / 40) % 40});
  }
  FleetSpec fleet;
  fleet.model = Llm();
  fleet.replicas = 10;
  fleet.prefix_tokens = 100;
  fleet.routing = Routing::kPrefix;
  const FleetResult hashed = Simulate(fleet, requests, {});
  // 120 ms without the prefix in the cache, 20 ms with it.
  EXPECT_NEAR(hashed.ttft_ns.Mean() / kMs, (40 * 120 + 360 * 20) / 400.0, 0.01);
  fleet.routing = Routing::kRoundRobin;
  EXPECT_GT(Simulate(fleet, requests, {}).ttft_ns.Mean(),
            hashed.ttft_ns.Mean());
}

TEST(Plan, RequestsOfALostReplicaStartAgain) {
  FleetSpec fleet;
  fleet.model = Graph({{1, 10.0 * kMs}});
  fleet.replicas = 4;
  fleet.loss = Loss{0.5, 1 * kSecond, 1 * kSecond};
  const auto requests = Poisson(390, 900);
  const FleetResult result = Simulate(fleet, requests, {});
  EXPECT_EQ(result.num_done, 900);
  EXPECT_GT(result.num_restarted, 0);
  EXPECT_GT(result.latency_ns.max(),
            RunFleet(fleet.model, requests, 4).latency_ns.max());
  // Two of four are not paid for during one second.
  EXPECT_NEAR(result.replica_seconds,
              4 * static_cast<double>(result.end) * 1e-9 - 2, 0.01);
  fleet.loss = Loss{1, 1 * kSecond, kNever};
  const FleetResult none = Simulate(fleet, requests, {});
  EXPECT_EQ(none.num_done + none.num_refused, 900);
  EXPECT_GT(none.num_refused, 0);
}

TEST(Plan, ASlowStartOfReplicasShowsInTheTail) {
  FleetSpec fleet;
  fleet.model = Graph({{1, 100.0 * kMs}});
  fleet.routing = Routing::kLeastLoaded;
  fleet.autoscale = Autoscale{1, 20, 2, kSecond};
  const auto requests = Poisson(50, 3000);
  fleet.start_time = 1 * kSecond;
  const FleetResult fast = Simulate(fleet, requests, {});
  fleet.start_time = 20 * kSecond;
  const FleetResult slow = Simulate(fleet, requests, {});
  EXPECT_EQ(fast.num_done, 3000);
  EXPECT_EQ(slow.num_done, 3000);
  EXPECT_LT(2 * fast.latency_ns.Percentile(99), slow.latency_ns.Percentile(99));
  EXPECT_GT(fast.most_replicas, 4);
  EXPECT_LE(slow.most_replicas, 20);
}

TEST(Plan, TheSameSeedGivesTheSameResult) {
  const auto requests =
      Poisson(100, 5000, {.input_tokens = 20, .output_tokens = 30});
  const FleetResult a = RunFleet(Llm(), requests, 7, Routing::kLeastLoaded);
  const FleetResult b = RunFleet(Llm(), requests, 7, Routing::kLeastLoaded);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.num_events, b.num_events);
  EXPECT_EQ(a.ttft_ns.Mean(), b.ttft_ns.Mean());
  EXPECT_LT(a.num_events, 5000 * 8) << "events do not grow with tokens";
}

TEST(Plan, GoodRequestsAreWithinTheLimits) {
  FleetSpec fleet;
  fleet.model = Graph({{1, 10.0 * kMs}});
  const std::vector<SimRequest> three(3);
  const FleetResult result =
      Simulate(fleet, three, *ParseSlo("latency:p99:20ms"));
  EXPECT_EQ(result.num_good, 2) << "10, 20 and 30 ms";
}

}  // namespace
}  // namespace millrace::loadtest
