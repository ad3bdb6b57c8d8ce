#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loadtest/arrivals.h"
#include "loadtest/plan/fit.h"
#include "loadtest/plan/fleet.h"
#include "loadtest/plan/refine.h"
#include "loadtest/plan/server_facts.h"
#include "loadtest/plan/server_model.h"

namespace millrace::loadtest {
namespace {

using testing::HasSubstr;

constexpr Ns kMs = 1'000'000;
constexpr Ns kSecond = 1000 * kMs;

ServerModel Llm() {
  ServerModel model;
  model.step_base_ns = 10 * kMs;
  model.prefill_token_ns = 1 * kMs;
  model.decode_sequence_ns = 2 * kMs;
  return model;
}

ServerModel Graph(std::vector<std::pair<int64_t, double>> batch_ns) {
  ServerModel model;
  model.graph = true;
  model.batch_ns = std::move(batch_ns);
  return model;
}

std::vector<SimRequest> Poisson(double rate, int64_t count,
                                SimRequest request = {}) {
  Arrivals arrivals({.kind = ArrivalKind::kPoisson, .rate = rate, .seed = 7});
  std::vector<SimRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    request.arrival = arrivals.Next()->count();
    requests.push_back(request);
  }
  return requests;
}

FleetResult RunFleet(const ServerModel& model,
                     const std::vector<SimRequest>& requests,
                     int64_t replicas = 1,
                     Routing routing = Routing::kRoundRobin) {
  FleetSpec fleet;
  fleet.model = model;
  fleet.replicas = replicas;
  fleet.routing = routing;
  return Simulate(fleet, requests, {});
}

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

// ---- the server model -------------------------------------------------------

TEST(ServerModel, TimesOfBatchesLieOnLines) {
  const ServerModel model = Graph({{1, 10}, {4, 40}, {8, 60}});
  EXPECT_EQ(model.BatchNs(1), 10);
  EXPECT_EQ(model.BatchNs(2), 20);
  EXPECT_EQ(model.BatchNs(6), 50);
  EXPECT_EQ(model.BatchNs(16), 100);
  EXPECT_EQ(Graph({{4, 40}}).BatchNs(9), 40);
}

TEST(ServerModel, IsReadAsItIsWritten) {
  ServerModel llm = Llm();
  llm.kv_tokens = 1000;
  EXPECT_EQ(ServerModelJson(*ParseServerModel(ServerModelJson(llm))),
            ServerModelJson(llm));
  const ServerModel graph = Graph({{1, 10.0 * kMs}, {8, 30.0 * kMs}});
  EXPECT_EQ(ServerModelJson(*ParseServerModel(ServerModelJson(graph))),
            ServerModelJson(graph));
}

TEST(ServerModel, WrongFilesAreRefused) {
  const auto error = [](const std::string& fields) {
    return std::string(
        ParseServerModel("{\"format\": \"millrace-server-model/1\"" + fields +
                         "}")
            .status()
            .message());
  };
  EXPECT_THAT(std::string(ParseServerModel("[]").status().message()),
              HasSubstr("no server model"));
  EXPECT_THAT(error(""), HasSubstr("kind is null"));
  EXPECT_THAT(error(R"(, "kind": "llm")"), HasSubstr("are 0"));
  EXPECT_THAT(error(R"(, "kind": "llm", "step_base_ms": -1)"),
              HasSubstr("step_base_ms is -1"));
  EXPECT_THAT(error(R"(, "kind": "llm", "max_num_seqs": 0)"),
              HasSubstr("at least 1"));
  EXPECT_THAT(error(R"(, "kind": "graph", "batch_ms": [[2, 1], [1, 1]])"),
              HasSubstr("rising rows"));
}

// ---- fit --------------------------------------------------------------------

TEST(Fit, FindsThePricesOfASimulatedServer) {
  const ServerModel truth = Llm();
  std::vector<FitPoint> points;
  for (const double rate : {0.05, 2.0, 4.0}) {
    const auto requests =
        Poisson(rate, 4000, {.input_tokens = 50, .output_tokens = 20});
    const FleetResult result = RunFleet(truth, requests);
    FitPoint point;
    point.closed_loop = rate < 0.1;  // one request at a time
    point.request_rate = rate;
    point.input_tokens = 50;
    point.output_tokens = 20;
    point.ttft_ms = result.ttft_ns.Mean() / kMs;
    point.tpot_ms = result.tpot_ns.Mean() / kMs;
    point.latency_ms = result.latency_ns.Mean() / kMs;
    point.concurrency = point.closed_loop ? 1 : rate * point.latency_ms / 1000;
    points.push_back(point);
  }
  const auto model = FitServerModel(points, ServerModel());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_NEAR(model->prefill_token_ns, 1 * kMs, 0.1 * kMs);
  EXPECT_NEAR(model->step_base_ns + model->decode_sequence_ns, 12 * kMs,
              1 * kMs);
  for (const FitPoint& point : points) {
    EXPECT_NEAR(PredictedTpotMs(*model, point), point.tpot_ms,
                0.1 * point.tpot_ms);
  }
}

TEST(Fit, IsRefinedUntilASimulationShowsTheTimes) {
  ServerModel truth = Llm();
  truth.prefill_token_ns = 0.1 * kMs;
  truth.request_overhead_ns = 3 * kMs;
  std::vector<FitPoint> points;
  for (const int users : {1, 2, 4, 8}) {
    FitPoint point;
    point.concurrency = users;
    point.input_tokens = 200;
    point.output_tokens = 20;
    const ClosedLoopTimes times = SimulateClosedLoop(truth, point);
    point.ttft_ms = times.ttft_ms;
    point.tpot_ms = times.tpot_ms;
    points.push_back(point);
  }
  ServerModel start = Llm();
  start.step_base_ns = 6 * kMs;
  start.prefill_token_ns = 0.2 * kMs;
  start.decode_sequence_ns = 1 * kMs;
  const ServerModel model = RefineServerModel(points, start);
  EXPECT_LT(ClosedLoopError(points, model), 1e-3);
  EXPECT_NEAR(model.prefill_token_ns, 0.1 * kMs, 0.01 * kMs);
  EXPECT_NEAR(model.step_base_ns + 4 * model.decode_sequence_ns, 18 * kMs,
              1 * kMs);
  points.resize(1);
  EXPECT_EQ(RefineServerModel(points, start).step_base_ns, start.step_base_ns)
      << "one load does not tell four prices";
}

TEST(Fit, ShortPromptsTellATokenFromARequest) {
  ServerModel truth = Llm();
  truth.prefill_token_ns = 0.4 * kMs;
  truth.request_overhead_ns = 1 * kMs;
  std::vector<FitPoint> points;
  for (const auto& [users, tokens] :
       {std::pair(1, 120), {2, 120}, {4, 120}, {1, 30}}) {
    FitPoint point;
    point.concurrency = users;
    point.input_tokens = tokens;
    point.input_std = tokens == 120 ? 30 : 0;
    point.output_tokens = 40;
    point.output_std = 10;
    const ClosedLoopTimes times = SimulateClosedLoop(truth, point);
    point.ttft_ms = times.ttft_ms;
    point.tpot_ms = times.tpot_ms;
    points.push_back(point);
  }
  ServerModel start = truth;
  start.prefill_token_ns = 0.1 * kMs;
  start.request_overhead_ns = 35 * kMs;
  const ServerModel model = RefineServerModel(points, start);
  EXPECT_NEAR(model.prefill_token_ns, 0.4 * kMs, 0.02 * kMs);
  EXPECT_LT(model.request_overhead_ns, 4 * kMs);
}

TEST(Fit, TheServerTellsLimitsAndPrices) {
  const ServerFacts facts = ParseServerFacts(
      "# HELP x y\n"
      "millrace_scheduler_limit{limit=\"max_num_seqs\",model=\"m\"} 32\n"
      "millrace_scheduler_limit{limit=\"target_itl\",model=\"m\"} 0.15\n"
      "millrace_scheduler_limit{limit=\"kv_cache_tokens\",model=\"m\"} 64000\n"
      "millrace_scheduler_limit{limit=\"max_num_seqs\",model=\"n\"} 5\n"
      "millrace_step_price_seconds{model=\"m\",of=\"step\"} 0.004\n"
      "millrace_step_price_seconds{model=\"m\",of=\"row\"} 0.0002\n"
      "millrace_step_price_seconds{model=\"m\",of=\"sample\"} 0.0001\n"
      "millrace_step_price_seconds{model=\"m\",of=\"key\"} nonsense\n"
      "millrace_model_load_seconds{model=\"m\",version=\"1\"} 0.5",
      "m");
  ServerModel model;
  model.kv_tokens = 99;
  ApplyFacts(facts, {"kv_cache_tokens"}, model);
  EXPECT_EQ(model.max_num_seqs, 32);
  EXPECT_EQ(model.target_itl_ns, 150 * kMs);
  EXPECT_EQ(model.kv_tokens, 99) << "the command line said so";
  EXPECT_EQ(model.start_ns, 500 * kMs);
  EXPECT_NEAR(model.step_base_ns, 4 * kMs, 1);
  EXPECT_NEAR(model.decode_sequence_ns, 0.3 * kMs, 1);
  EXPECT_EQ(model.attended_key_ns, 0);
  EXPECT_FALSE(ParseServerFacts("", "m").known());
}

TEST(Fit, NeedsReportsOfStreams) {
  EXPECT_FALSE(FitServerModel({}, ServerModel()).ok());
  EXPECT_THAT(std::string(FitPointOf("{}").status().message()),
              HasSubstr("no report"));
  EXPECT_THAT(std::string(FitPointOf(R"({"format": "millrace-loadtest/1"})")
                              .status()
                              .message()),
              HasSubstr("--streaming"));
}

}  // namespace
}  // namespace millrace::loadtest
