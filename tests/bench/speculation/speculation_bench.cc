// What draft tokens do to one model's speed, without sockets:
//
//   speculation_bench MODEL [DRAFT] [STREAMS…]
//
// For each number of streams (1 4 16 if none is given) the same greedy answers
// are generated without draft tokens, by look-up, and, where a draft model is
// named, as the engine chooses and always with 1, 3 and 5 draft tokens. Ways
// take turns, medians of three rounds are printed. Answers must be the same in
// every way.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "config/base/metrics.h"
#include "config/topology.h"
#include "models/llm/model.h"
#include "scheduler/engine.h"

namespace millrace {
namespace {

using scheduler::Engine;

constexpr int kRounds = 3;
constexpr int32_t kAnswerTokens = 128;

constexpr const char* kPrompts[] = {
    "Write a Python function that sorts a list of words by their length.",
    "Explain in three sentences why the sky is blue.",
    "Repeat this list, then add one: apples, oranges, pears, plums, figs.",
    "Tell a short story about a lighthouse keeper and a storm.",
};

struct Way {
  const char* name;
  int32_t num_tokens;  // 0: none
  bool draft;
  bool always;
};

struct Figure {
  double tokens_per_s = 0;
  double drafted = 0;
  double accepted = 0;
  double draft_share = 0;  // of the time
};

double Value(MetricRegistry& registry, const std::string& name) {
  const std::string text = registry.Text();
  const size_t at = text.find("\nmillrace_spec_decode_" + name + "_total{");
  if (at == std::string::npos) return 0;
  return std::stod(text.substr(text.find("} ", at) + 2));
}

struct Bench {
  MetricRegistry registry;  // outlives the engine
  models::LlmModel model;
  std::unique_ptr<Engine> engine;
  std::vector<std::vector<int32_t>> answers;
  std::vector<Figure> rounds;
};

StatusOr<std::unique_ptr<Bench>> Load(const std::string& path,
                                      const std::string& draft,
                                      const Way& way) {
  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  models::LlmOptions options;
  options.cpus = topology.PhysicalCores(
      std::min<int>(topology.cores().size(), topology.cpu_limit()));
  options.settings.max_model_len = 1024;
  options.settings.max_num_seqs = 16;
  if (way.draft) options.settings.speculative_model = draft;
  auto bench = std::make_unique<Bench>();
  ASSIGN_OR_RETURN(bench->model, models::LoadLlm(path, options));
  bench->engine = Engine::Create(
      std::move(bench->model.runner),
      {.model = "bench",
       .enable_prefix_caching = false,
       .target_itl = std::chrono::milliseconds(50),
       .speculative = {.num_tokens = way.num_tokens, .always = way.always}},
      &bench->registry, std::move(bench->model.draft_runner));
  return bench;
}

// Blocks until all streams have ended.
Status Run(Bench& bench, int32_t streams) {
  // A wake may come after the end was taken, hence shared.
  const auto moved = std::make_shared<std::counting_semaphore<>>(0);
  std::vector<std::shared_ptr<scheduler::TokenStream>> open;
  const double drafted = Value(bench.registry, "num_draft_tokens");
  const double accepted = Value(bench.registry, "num_accepted_tokens");
  const double draft_seconds = Value(bench.registry, "draft_seconds");
  const auto begun = std::chrono::steady_clock::now();
  for (int32_t i = 0; i < streams; ++i) {
    scheduler::GenerateTask task;
    const std::string text = kPrompts[static_cast<size_t>(i) % 4];
    task.prompt = bench.model.tokenizer->Encode(
        "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n",
        {.parse_special = true});
    task.max_tokens = kAnswerTokens;
    task.sampling.temperature = 0;
    ASSIGN_OR_RETURN(scheduler::Reservation place, bench.engine->Reserve());
    ASSIGN_OR_RETURN(auto stream,
                     bench.engine->Submit(std::move(place), std::move(task)));
    stream->OnReady([moved] { moved->release(); });
    open.push_back(std::move(stream));
  }
  bench.answers.assign(open.size(), {});
  for (size_t ended = 0; ended < open.size();) {
    moved->acquire();
    for (size_t i = 0; i < open.size(); ++i) {
      auto taken = open[i]->Take();
      for (const auto& event : taken.tokens) {
        bench.answers[i].push_back(event.id);
      }
      ended += taken.end.has_value();
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun)
          .count();
  bench.rounds.push_back(
      {.tokens_per_s = streams * kAnswerTokens / seconds,
       .drafted = Value(bench.registry, "num_draft_tokens") - drafted,
       .accepted = Value(bench.registry, "num_accepted_tokens") - accepted,
       .draft_share =
           (Value(bench.registry, "draft_seconds") - draft_seconds) / seconds});
  return OkStatus();
}

void Print(const Way& way, int32_t streams, std::vector<Figure> rounds) {
  std::ranges::sort(rounds, {}, &Figure::tokens_per_s);
  const Figure& median = rounds[rounds.size() / 2];
  std::printf("| %d | %s | %.0f (%.0f–%.0f) | %.0f | %.0f | %.0f | %.0f |\n",
              streams, way.name, median.tokens_per_s,
              rounds.front().tokens_per_s, rounds.back().tokens_per_s,
              median.drafted, median.accepted,
              100 * median.accepted / std::max(median.drafted, 1.0),
              100 * median.draft_share);
  std::fflush(stdout);
}

Status Main(const std::string& path, const std::string& draft,
            const std::vector<int32_t>& all_streams) {
  std::vector<Way> ways = {{"none", 0, false, false},
                           {"ngram", 5, false, false}};
  if (!draft.empty()) {
    ways.insert(ways.end(), {{"draft, as chosen", 5, true, false},
                             {"draft, always 1", 1, true, true},
                             {"draft, always 3", 3, true, true},
                             {"draft, always 5", 5, true, true}});
  }
  std::vector<std::unique_ptr<Bench>> benches;
  for (const Way& way : ways) {
    ASSIGN_OR_RETURN(auto bench, Load(path, draft, way));
    benches.push_back(std::move(bench));
  }
  std::printf(
      "| streams | draft tokens | tokens/s | drafted | accepted | %% | draft's "
      "time, %% |\n|---|---|---|---|---|---|---|\n");
  for (const int32_t streams : all_streams) {
    for (auto& bench : benches) bench->rounds.clear();
    for (int round = -1; round < kRounds; ++round) {
      for (auto& bench : benches) {
        RETURN_IF_ERROR(Run(*bench, streams));
        if (round < 0) bench->rounds.clear();  // prices are being learnt
        if (bench->answers != benches[0]->answers) {
          return Internal("draft tokens have changed an answer");
        }
      }
    }
    for (size_t i = 0; i < ways.size(); ++i) {
      Print(ways[i], streams, benches[i]->rounds);
    }
  }
  return OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  std::string draft;
  std::vector<int32_t> streams;
  for (int i = 2; i < argc; ++i) {
    char* end = nullptr;
    const long number = std::strtol(argv[i], &end, 10);
    if (*end != '\0') {
      draft = argv[i];
    } else if (number >= 1 && number <= 16) {
      streams.push_back(static_cast<int32_t>(number));
    }
  }
  if (streams.empty()) streams = {1, 4, 16};
  if (argc < 2) {
    std::fprintf(stderr, "usage: speculation_bench MODEL [DRAFT] [STREAMS…]\n");
    return 2;
  }
  const millrace::Status status = millrace::Main(argv[1], draft, streams);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
