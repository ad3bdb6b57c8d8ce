#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/plan/fit.h"
#include "loadtest/plan/fleet.h"
#include "loadtest/plan/refine.h"
#include "loadtest/plan/server_facts.h"
#include "loadtest/plan/server_model.h"
#include "tests/unit/loadtest/plan_servers.h"

namespace millrace::loadtest {
namespace {

using testing::HasSubstr;

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
  llm.prompt_step_ns = 3 * kMs;
  llm.tokens_per_step = {{1, 2.5}, {16, 1.8}};
  EXPECT_EQ(ServerModelJson(*ParseServerModel(ServerModelJson(llm))),
            ServerModelJson(llm));
  EXPECT_THAT(ServerModelJson(llm), HasSubstr("\"prompt_step_ms\": 3.0"));
  EXPECT_THAT(ServerModelJson(llm), HasSubstr("\"tokens_per_step\": ["));
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
  EXPECT_THAT(error(R"(, "kind": "llm", "tokens_per_step": [[1, 0.5]])"),
              HasSubstr("1 to 1000 tokens"));
  EXPECT_THAT(error(R"(, "kind": "llm", "tokens_per_step": [[2, 1], [2, 2]])"),
              HasSubstr("rising sequences"));
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

TEST(Fit, DraftTokensAndStepsOfPromptsAreFound) {
  ServerModel truth = Llm();
  truth.prefill_token_ns = 0.4 * kMs;
  truth.prompt_step_ns = 8 * kMs;
  truth.request_overhead_ns = 1 * kMs;
  std::vector<FitPoint> points;
  for (const auto& [users, tokens] :
       {std::pair(1, 120), {2, 120}, {4, 120}, {8, 120}, {1, 30}}) {
    FitPoint point;
    point.concurrency = users;
    point.input_tokens = tokens;
    point.output_tokens = 40;
    point.output_std = 10;
    point.tokens_per_step = users == 8 ? 1.5 : 2.5;
    point.outside_ms = users == 1 ? 1 : 30;
    const ClosedLoopTimes times = SimulateClosedLoop(truth, point);
    point.ttft_ms = times.ttft_ms;
    point.tpot_ms = times.tpot_ms;
    points.push_back(point);
  }
  ServerModel start = truth;
  start.prefill_token_ns = 0.1 * kMs;
  start.prompt_step_ns = 0;
  const ServerModel model = RefineServerModel(points, start);
  EXPECT_EQ(model.request_overhead_ns, 1 * kMs) << "of lone requests";
  EXPECT_NEAR(model.prefill_token_ns, 0.4 * kMs, 0.02 * kMs);
  EXPECT_NEAR(model.prompt_step_ns, 8 * kMs, 2 * kMs);
  EXPECT_NEAR(model.step_base_ns + 2.5 * model.decode_sequence_ns, 15 * kMs,
              0.5 * kMs);
}

TEST(Fit, ReportsTellTokensAStepAndWhatIsOutsideOfSteps) {
  const auto report = [](int gaps) {
    return R"({"format": "millrace-loadtest/1", "concurrency": 2,
      "time_to_first_token_ms": {"p50": 30},
      "time_per_output_token_ms": {"mean": 5},
      "request_latency_ms": {"mean": 225}, "request_throughput": 8,
      "output_tokens": {"mean": 40, "count": 10},
      "before_prefill_ms": {"p50": 0.7},
      "inter_token_latency_ms": {"count": )" +
           std::to_string(gaps) + "}}";
  };
  const auto point = FitPointOf(report(156));
  ASSERT_TRUE(point.ok()) << point.status().ToString();
  EXPECT_NEAR(point->tokens_per_step, 2.5, 1e-9) << "39 x 10 in 156 chunks";
  EXPECT_NEAR(DecodingSequences(*point), 2 * 195.0 / 225, 1e-9);
  EXPECT_EQ(point->outside_ms, 0.7);
  EXPECT_EQ(FitPointOf(report(380))->tokens_per_step, 1) << "held-back text";
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
