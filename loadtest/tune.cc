#include "loadtest/tune.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "loadtest/fetch.h"
#include "loadtest/server_process.h"
#include "loadtest/session.h"
#include "loadtest/setting_search.h"
#include "loadtest/sweep.h"

namespace millrace::loadtest {
namespace {

using Seconds = std::chrono::duration<double>;

MachineSize ThisMachine() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  MachineSize machine;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    machine.num_cpus = CPU_COUNT(&allowed);
  }
  machine.memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<double>(sysconf(_SC_PAGESIZE));
  return machine;
}

std::string Flag(const std::string& name, const std::string& value) {
  std::string flag = "--" + name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag + "=" + value;
}

// The first model that is ready, for protocols that must name one.
StatusOr<std::string> ReadyModel(const Options& options) {
  ASSIGN_OR_RETURN(
      const FetchReply reply,
      Fetch(options, "POST", "/v2/repository/index", R"({"ready": true})"));
  const auto models = nlohmann::json::parse(reply.body, nullptr, false);
  if (models.is_array() && !models.empty() && models[0].is_object() &&
      models[0].contains("name") && models[0]["name"].is_string()) {
    return models[0]["name"].get<std::string>();
  }
  return NotFound(
      "the server lists no model that is ready; name one with "
      "--model");
}

// The best candidate but the first; 0 where none met the objectives.
size_t BestOther(const std::vector<Candidate>& candidates) {
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    if (!candidates[i].best) continue;
    if (best == 0 || candidates[i].best->score > candidates[best].best->score) {
      best = i;
    }
  }
  return best;
}

class Tuner {
 public:
  Tuner(const TuneOptions& options, std::string config,
        std::vector<Setting> settings)
      : options_(options),
        config_(std::move(config)),
        settings_(std::move(settings)) {}

  StatusOr<TuneResult> Run();

 private:
  using Changes = std::vector<std::pair<std::string, std::string>>;

  Changes ChangesOf(const Choice& choice) const;
  std::vector<std::string> Words(const Changes& changes) const;
  StatusOr<std::unique_ptr<ServerProcess>> Serve(const Changes& changes);
  Status Aim(const ServerProcess& server, Options& load) const;
  Status Measure(Candidate& candidate, LoadRange range, double time_limit_s);
  Status MeasureRounds(TuneResult& result);
  Status MeasureOnce(Candidate& candidate);
  Status Write(const TuneResult& result) const;
  double Elapsed() const { return Seconds(Clock::now() - begin_).count(); }
  double FinalSeconds() const;

  const TuneOptions& options_;
  const std::string config_;
  const std::vector<Setting> settings_;
  const Time begin_ = Clock::now();
  StopSignals stop_;
  double start_s_ = 0;  // of the slowest start so far
};

Tuner::Changes Tuner::ChangesOf(const Choice& choice) const {
  Changes changes;
  for (size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] == settings_[i].base) continue;
    changes.emplace_back(settings_[i].name, settings_[i].values[choice[i]]);
  }
  return changes;
}

std::vector<std::string> Tuner::Words(const Changes& changes) const {
  std::vector<std::string> words = options_.server;
  for (const auto& [name, value] : changes) words.push_back(Flag(name, value));
  return words;
}

StatusOr<std::unique_ptr<ServerProcess>> Tuner::Serve(const Changes& changes) {
  std::vector<std::string> words = Words(changes);
  // The log of accesses would fill the memory; ports are any that are free.
  words.insert(words.end(),
               {"--host=127.0.0.1", "--http-port=0", "--grpc-port=0",
                "--log-format=json", "--log-level=info", "--access-log=false"});
  const Time begun = Clock::now();
  auto server = ServerProcess::Start(words, options_.start_timeout, stop_);
  start_s_ = std::max(start_s_, Seconds(Clock::now() - begun).count());
  return server;
}

Status Tuner::Aim(const ServerProcess& server, Options& load) const {
  const std::string http =
      "http://127.0.0.1:" + std::to_string(server.http_port());
  load.url_text = http;
  ASSIGN_OR_RETURN(load.url, ParseUrl(http, "80"));
  if (!options_.model_named && options_.graph) {
    ASSIGN_OR_RETURN(load.model, ReadyModel(load));
  }
  if (load.endpoint == EndpointType::kKserveGrpc) {
    load.url_text = "127.0.0.1:" + std::to_string(server.grpc_port());
    ASSIGN_OR_RETURN(load.url, ParseUrl(load.url_text, "8001"));
  }
  return OkStatus();
}

// Time that the rounds of the finalists will take.
double Tuner::FinalSeconds() const {
  const Seconds once = options_.load.duration + options_.load.warmup_time;
  return static_cast<double>(2 * options_.rounds) *
         (start_s_ + once.count() + 0.2);
}

// Only an interrupt is an error; whatever else fails is the candidate's.
Status Tuner::Measure(Candidate& candidate, LoadRange range,
                      double time_limit_s) {
  const auto server = Serve(candidate.changes);
  if (!server.ok()) {
    candidate.failure = server.status().message();
    return stop_.stopped() ? server.status() : OkStatus();
  }
  Options load = options_.load;
  Status aimed = Aim(**server, load);
  if (!aimed.ok()) {
    candidate.failure = aimed.message();
    return OkStatus();
  }
  const auto session = Session::Open(&load);
  if (!session.ok()) {
    candidate.failure = session.status().message();
    return OkStatus();
  }
  FindHighestLoad(range, [&](double value) -> std::optional<LoadPoint> {
    if (stop_.Wait(std::chrono::milliseconds(0))) return std::nullopt;
    if (candidate.num_loads > 0 && Elapsed() > time_limit_s) {
      candidate.out_of_time = true;
      return std::nullopt;
    }
    StatusOr<Report> report =
        MeasureLoad(load, **session, options_.search_rate, value);
    if (!report.ok()) {
      if (report.status().code() == StatusCode::kCancelled) stop_.Stop();
      candidate.failure = report.status().message();
      return std::nullopt;
    }
    if (report->interrupted) stop_.Stop();
    if (const Status running = (*server)->Running(); !running.ok()) {
      candidate.failure = running.message();
      return std::nullopt;
    }
    ++candidate.num_loads;
    const bool met = report->num_ok > 0 && report->slo_met;
    const LoadPoint point = {value, report->goodput, met};
    const bool highest =
        met && (!candidate.best || point.score > candidate.best->score);
    if (highest) candidate.best = point;
    if (highest || !candidate.best) {
      candidate.report = std::move(report).value();
    }
    return point;
  });
  if (!candidate.failure.empty()) candidate.best.reset();
  if (stop_.stopped()) return Cancelled("interrupted");
  return OkStatus();
}

Status Tuner::MeasureOnce(Candidate& candidate) {
  ASSIGN_OR_RETURN(const auto server, Serve(candidate.changes));
  Options load = options_.load;
  RETURN_IF_ERROR(Aim(*server, load));
  ASSIGN_OR_RETURN(const auto session, Session::Open(&load));
  ASSIGN_OR_RETURN(
      const Report report,
      MeasureLoad(load, *session, options_.search_rate, candidate.best->load));
  if (report.interrupted) return Cancelled("interrupted");
  RETURN_IF_ERROR(server->Running());
  candidate.goodput.push_back(report.goodput);
  return OkStatus();
}

// The finalists in turns, so that a slow drift of the machine meets both.
Status Tuner::MeasureRounds(TuneResult& result) {
  for (int64_t round = 0; round < options_.rounds; ++round) {
    for (const size_t index : {size_t{0}, result.finalist}) {
      Candidate& candidate = result.candidates[index];
      const Status measured = MeasureOnce(candidate);
      if (stop_.stopped() || measured.code() == StatusCode::kCancelled) {
        return Cancelled("interrupted");
      }
      if (measured.ok()) continue;
      candidate.failure = measured.message();
      candidate.goodput.push_back(0);
    }
  }
  return OkStatus();
}

StatusOr<TuneResult> Tuner::Run() {
  TuneResult result;
  std::fputs(TuneHeader(options_).c_str(), stdout);
  const auto print = [&] {
    const size_t index = result.candidates.size() - 1;
    std::fputs(TuneRow(index, result.candidates[index]).c_str(), stdout);
    std::fflush(stdout);
  };
  const double budget_s = Seconds(options_.budget).count();
  LoadRange range;
  range.whole = !options_.search_rate;
  if (options_.search_rate) {
    range.least = 0.01;
    range.most = 1e6;
  } else {
    range.most = 4096;
  }
  result.candidates.emplace_back();
  RETURN_IF_ERROR(Measure(result.candidates[0], range, budget_s / 2));
  print();
  const Candidate& base = result.candidates[0];
  if (!base.failure.empty()) {
    return FailedPrecondition(
        "the configuration to start from does not "
        "serve: " +
        base.failure);
  }
  Status interrupted;
  const auto limit_s = [&] { return budget_s - FinalSeconds(); };
  std::optional<double> base_score;
  if (base.best) {
    base_score = base.best->score;
    range.start = base.best->load;
  }
  SearchSettings(
      settings_, base_score,
      [&](const Choice& choice, double best_score) -> std::optional<double> {
        Candidate candidate;
        candidate.changes = ChangesOf(choice);
        if (best_score > 0) range.beat = best_score;
        interrupted = Measure(candidate, range, limit_s());
        result.candidates.push_back(std::move(candidate));
        print();
        const auto& found = result.candidates.back().best;
        if (!found) return std::nullopt;
        if (found->score > best_score) range.start = found->load;
        return found->score;
      },
      [&] { return !interrupted.ok() || Elapsed() > limit_s(); });
  RETURN_IF_ERROR(interrupted);
  const bool base_met = result.candidates[0].best.has_value();
  result.finalist = BestOther(result.candidates);
  result.best = result.finalist;
  result.met = base_met || result.finalist != 0;
  if (result.finalist != 0 && base_met) {
    RETURN_IF_ERROR(MeasureRounds(result));
    DecideRounds(result);
  }
  result.seconds = Elapsed();
  std::fputs(TuneVerdict(options_, result).c_str(), stdout);
  if (result.met) RETURN_IF_ERROR(Write(result));
  return result;
}

Status Tuner::Write(const TuneResult& result) const {
  std::vector<std::string> words =
      Words(result.candidates[result.best].changes);
  words.push_back("--print-config");
  ASSIGN_OR_RETURN(const std::string printed, RunCommand(words));
  auto version = RunCommand({options_.server[0], "--version"});
  if (version.ok()) version->erase(version->find_last_not_of('\n') + 1);
  RETURN_IF_ERROR(WriteFile(
      options_.output,
      TunedFile(options_, result, version.ok() ? *version : "", printed)));
  std::printf("Written: %s; start it with millrace serve --config %s\n",
              options_.output.c_str(), options_.output.c_str());
  return OkStatus();
}

}  // namespace

bool ClearlyBetter(const std::vector<double>& before,
                   const std::vector<double>& after) {
  if (before.empty() || after.empty()) return false;
  return *std::min_element(after.begin(), after.end()) >
         *std::max_element(before.begin(), before.end());
}

void DecideRounds(TuneResult& result) {
  const Candidate& given = result.candidates[0];
  const Candidate& other = result.candidates[result.finalist];
  result.met = given.failure.empty() || other.failure.empty();
  const bool other_wins =
      given.failure.empty()
          ? other.failure.empty() && ClearlyBetter(given.goodput, other.goodput)
          : other.failure.empty();
  result.best = other_wins ? result.finalist : 0;
}

StatusOr<TuneResult> Tune(const TuneOptions& options) {
  std::vector<std::string> words = options.server;
  words.push_back("--print-config");
  ASSIGN_OR_RETURN(const std::string config, RunCommand(words));
  std::vector<Setting> settings;
  for (const std::string& text : options.tries) {
    ASSIGN_OR_RETURN(Setting setting, ParseTry(text, config));
    settings.push_back(std::move(setting));
  }
  if (options.tries.empty()) {
    settings = UsualSettings(options.graph, config, ThisMachine());
  }
  // The file must be writable before ten minutes are spent.
  if (access(options.output.c_str(), F_OK) != 0) {
    RETURN_IF_ERROR(WriteFile(options.output, ""));
    unlink(options.output.c_str());
  } else if (access(options.output.c_str(), W_OK) != 0) {
    return FailedPrecondition("--output '" + options.output +
                              "' cannot be written; choose another file");
  }
  return Tuner(options, config, std::move(settings)).Run();
}

}  // namespace millrace::loadtest
