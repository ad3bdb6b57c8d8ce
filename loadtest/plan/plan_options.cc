#include "loadtest/plan/plan_options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "loadtest/arrivals.h"
#include "loadtest/dataset.h"
#include "loadtest/option_values.h"
#include "loadtest/own_flags.h"
#include "loadtest/plan/lengths.h"

namespace millrace::loadtest {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr int64_t kMostReplicas = 10'000;
constexpr int64_t kMostRequests = 20'000'000;
constexpr int64_t kDefaultRequests = 10'000;
constexpr double kDefaultTokens = 128;
constexpr Ns kStartNs = 60'000'000'000;

// "1,2,4"
StatusOr<std::vector<int64_t>> ParseInts(const char* flag,
                                         const std::string& text, int64_t most,
                                         char mark = ',') {
  std::vector<int64_t> values;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, mark);) {
    ASSIGN_OR_RETURN(const int64_t value, ParseInt(flag, part, 1, most));
    values.push_back(value);
  }
  if (!values.empty()) return values;
  return InvalidArgument(std::string("--") + flag +
                         " is empty; write numbers as in 1,2,4");
}

StatusOr<Routing> ParseRouting(const std::string& text) {
  if (text == "round-robin") return Routing::kRoundRobin;
  if (text == "least-loaded") return Routing::kLeastLoaded;
  if (text == "prefix") return Routing::kPrefix;
  return InvalidArgument("--routing '" + text +
                         "' is unknown; it is one of round-robin, "
                         "least-loaded and prefix");
}

// "0.33@300s" or "0.33@300s:120s"
StatusOr<Loss> ParseLoss(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos) {
    return InvalidArgument("--lose '" + text +
                           "' must be SHARE@TIME or SHARE@TIME:DURATION, as "
                           "in 0.33@300s:120s");
  }
  Loss loss;
  ASSIGN_OR_RETURN(loss.share, ParseReal("lose", text.substr(0, at), 0, 1));
  const size_t colon = text.find(':', at);
  ASSIGN_OR_RETURN(const nanoseconds when,
                   ParseDuration(text.substr(at + 1, colon - at - 1)));
  loss.at = when.count();
  if (colon != std::string::npos) {
    ASSIGN_OR_RETURN(const nanoseconds lasts,
                     ParseDuration(text.substr(colon + 1)));
    loss.lasts = lasts.count();
  }
  return loss;
}

Status ReadReplicas(const OwnFlags& flags, PlanOptions& options) {
  const std::string text = flags.Str("replicas", "auto");
  ASSIGN_OR_RETURN(const nanoseconds start,
                   flags.Duration("start-time",
                                  nanoseconds(options.fleet.model.start_ns > 0
                                                  ? options.fleet.model.start_ns
                                                  : kStartNs),
                                  true));
  options.fleet.start_time = start.count();
  if (text == "auto") {
    options.find_replicas = true;
  } else if (text.find(':') != std::string::npos) {
    ASSIGN_OR_RETURN(const auto bounds,
                     ParseInts("replicas", text, kMostReplicas, ':'));
    if (bounds.size() != 2 || bounds[0] > bounds[1]) {
      return InvalidArgument("--replicas '" + text +
                             "' must be LEAST:MOST, as in 2:20");
    }
    const ServerModel& model = options.fleet.model;
    const int64_t room = model.graph
                             ? model.max_batch_size * model.instance_count
                             : model.max_num_seqs;
    Autoscale rule;
    rule.least = bounds[0];
    rule.most = bounds[1];
    ASSIGN_OR_RETURN(
        rule.target,
        flags.Real("target-load", std::max(1.0, static_cast<double>(room) / 2),
                   0.01, 1e6));
    ASSIGN_OR_RETURN(const nanoseconds interval,
                     flags.Duration("scale-interval", seconds(10)));
    rule.interval = interval.count();
    options.fleet.autoscale = rule;
    options.replicas = {rule.least};
  } else {
    ASSIGN_OR_RETURN(options.replicas,
                     ParseInts("replicas", text, kMostReplicas));
  }
  for (const char* name : {"target-load", "scale-interval"}) {
    if (!flags.Has(name) || options.fleet.autoscale) continue;
    return InvalidArgument(std::string("--") + name +
                           " is for a fleet that scales; say --replicas "
                           "LEAST:MOST");
  }
  return OkStatus();
}

Status CheckPlan(const PlanOptions& options) {
  const Options& load = options.load;
  if (!load.open_loop) {
    return InvalidArgument(
        "plan needs to know when requests come: give --request-rate R (and "
        "--arrival poisson), or --arrival trace --dataset FILE");
  }
  if (options.find_replicas && load.slo.empty()) {
    return InvalidArgument(
        "plan looks for the fewest replicas that meet --slo, which is "
        "missing; give it, or a number with --replicas");
  }
  for (const Objective& objective : load.slo) {
    if (objective.metric == Metric::kLatency || !options.fleet.model.graph) {
      continue;
    }
    return InvalidArgument("--slo names " +
                           std::string(MetricName(objective.metric)) +
                           ", but the server model is of a graph, which has "
                           "latency alone");
  }
  if (load.num_requests > kMostRequests) {
    return InvalidArgument(
        "--num-requests is " + std::to_string(load.num_requests) +
        " but plan " + "simulates at most " + std::to_string(kMostRequests));
  }
  return OkStatus();
}

TokenCount Given(TokenCount count) {
  if (count.mean == 0) count.mean = kDefaultTokens;
  return count;
}

// Where the data set has text only, one token for each word.
int32_t InputTokens(const Conversation& conversation) {
  int64_t tokens = conversation.input_length;
  if (tokens < 0) {
    tokens = 0;
    for (const Turn& turn : conversation.turns) {
      std::istringstream words(turn.text);
      for (std::string word; words >> word;) ++tokens;
    }
  }
  return static_cast<int32_t>(std::clamp<int64_t>(tokens, 1, 100'000'000));
}

}  // namespace

StatusOr<PlanOptions> ParsePlanOptions(const std::vector<std::string>& args) {
  PlanOptions options;
  ASSIGN_OR_RETURN(
      const OwnFlags flags,
      OwnFlags::Cut(args, {"server-model", "replicas", "routing",
                           "prefix-groups", "start-time", "target-load",
                           "scale-interval", "lose", "price-per-hour"}));
  if (flags.RestHas("help", "-h")) {
    options.help = true;
    return options;
  }
  for (const char* no : {"url", "concurrency", "sweep", "repetitions", "csv",
                         "warmup", "endpoint-type", "max-connections"}) {
    if (!flags.RestHas(no)) continue;
    return InvalidArgument(std::string("--") + no +
                           " does not go with plan, which simulates an open "
                           "loop without a server; leave it out");
  }
  if (!flags.Has("server-model")) {
    return InvalidArgument(
        "plan needs --server-model FILE; millrace-loadtest plan fit --url "
        "ADDRESS makes one from a running server");
  }
  const std::string file = flags.Str("server-model");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  auto model = ParseServerModel(text);
  if (!model.ok()) {
    return std::move(model).status().Prefixed("--server-model " + file);
  }
  options.fleet.model = std::move(model).value();
  RETURN_IF_ERROR(ReadReplicas(flags, options));
  ASSIGN_OR_RETURN(options.fleet.routing,
                   ParseRouting(flags.Str("routing", "least-loaded")));
  ASSIGN_OR_RETURN(const int64_t groups,
                   flags.Int("prefix-groups", 0, 1, 1'000'000'000));
  options.prefix_groups = static_cast<int32_t>(groups);
  if (flags.Has("lose")) {
    ASSIGN_OR_RETURN(options.fleet.loss, ParseLoss(flags.Str("lose")));
  }
  ASSIGN_OR_RETURN(options.price_per_hour,
                   flags.Real("price-per-hour", 0, 0, 1e6));
  std::vector<std::string> rest = flags.rest();
  rest.push_back("--streaming");  // objectives may name tokens
  ASSIGN_OR_RETURN(options.load, ParseOptions(rest));
  if (!flags.RestHas("num-requests", "-n") && !flags.RestHas("duration") &&
      options.load.arrivals.kind != ArrivalKind::kTrace) {
    options.load.num_requests = kDefaultRequests;
  }
  options.fleet.prefix_tokens = options.load.shared_prefix_tokens;
  if ((options.prefix_groups > 0) != (options.fleet.prefix_tokens > 0)) {
    return InvalidArgument(
        "--prefix-groups and --shared-prefix-tokens go together: so many "
        "groups of requests begin alike, with so many tokens");
  }
  if (options.fleet.routing == Routing::kPrefix && options.prefix_groups == 0) {
    return InvalidArgument(
        "--routing prefix needs --prefix-groups and --shared-prefix-tokens");
  }
  RETURN_IF_ERROR(CheckPlan(options));
  return options;
}

StatusOr<std::vector<SimRequest>> MakeSimRequests(const PlanOptions& options) {
  const Options& load = options.load;
  Dataset dataset;
  if (!load.dataset.empty()) {
    ASSIGN_OR_RETURN(dataset, LoadJsonl(load.dataset));
  }
  ArrivalSpec spec = load.arrivals;
  if (spec.kind == ArrivalKind::kTrace) {
    ASSIGN_OR_RETURN(spec.trace, TraceOf(dataset, spec.rate));
  }
  Arrivals arrivals(spec);
  std::mt19937_64 random(load.seed + 1);
  Lengths inputs(Given(load.input_tokens), &random);
  Lengths outputs(Given(load.output_tokens), &random);
  std::vector<SimRequest> requests;
  while (load.num_requests < 0 ||
         static_cast<int64_t>(requests.size()) < load.num_requests) {
    const std::optional<nanoseconds> due = arrivals.Next();
    if (!due || (load.duration.count() > 0 && *due >= load.duration)) break;
    if (static_cast<int64_t>(requests.size()) >= kMostRequests) {
      return InvalidArgument("these are more than " +
                             std::to_string(kMostRequests) +
                             " requests; shorten --duration");
    }
    SimRequest request;
    request.arrival = due->count();
    request.rows = static_cast<int32_t>(load.batch_size);
    request.output_tokens = outputs.Next();
    if (dataset.empty()) {
      // What a group has in common comes before the tokens of its own.
      request.input_tokens =
          inputs.Next() + static_cast<int32_t>(load.shared_prefix_tokens);
    } else {
      const Conversation& line = dataset[requests.size() % dataset.size()];
      request.input_tokens = InputTokens(line);
      const int64_t asked =
          line.turns.empty() ? -1 : line.turns.front().output_tokens;
      if (asked > 0) {
        request.output_tokens =
            static_cast<int32_t>(std::min<int64_t>(asked, 100'000'000));
      }
    }
    if (options.prefix_groups > 0) {
      request.group = static_cast<int32_t>(
          random() % static_cast<uint64_t>(options.prefix_groups));
    }
    requests.push_back(request);
  }
  if (!requests.empty()) return requests;
  return InvalidArgument("no request is due; lengthen --duration");
}

StatusOr<FitOptions> ParseFitOptions(const std::vector<std::string>& args) {
  FitOptions options;
  ASSIGN_OR_RETURN(
      const OwnFlags flags,
      OwnFlags::Cut(
          args, {"output", "loads", "rows", "kv-tokens", "max-num-seqs",
                 "max-num-batched-tokens", "max-batch-size", "max-queue-delay",
                 "instance-count"}));
  options.output = flags.Str("output", options.output);
  constexpr int64_t kMost = 1'000'000'000;
  ASSIGN_OR_RETURN(options.loads,
                   ParseInts("loads", flags.Str("loads", "1,2,4,8"), 4096));
  ASSIGN_OR_RETURN(options.rows,
                   ParseInts("rows", flags.Str("rows", "1,2,4,8"), 65536));
  ServerModel& model = options.limits;
  ASSIGN_OR_RETURN(model.kv_tokens, flags.Int("kv-tokens", 0, 0, kMost));
  ASSIGN_OR_RETURN(model.max_num_seqs, flags.Int("max-num-seqs", 64, 1, kMost));
  ASSIGN_OR_RETURN(model.max_num_batched_tokens,
                   flags.Int("max-num-batched-tokens", 512, 1, kMost));
  ASSIGN_OR_RETURN(model.max_batch_size,
                   flags.Int("max-batch-size", 1, 1, 65536));
  ASSIGN_OR_RETURN(model.instance_count,
                   flags.Int("instance-count", 1, 1, 1024));
  ASSIGN_OR_RETURN(const nanoseconds delay,
                   flags.Duration("max-queue-delay", seconds(0), true));
  model.max_queue_delay_ns = delay.count();
  for (const auto& [flag, setting] :
       {std::pair("kv-tokens", "kv_cache_tokens"),
        std::pair("max-num-seqs", "max_num_seqs"),
        std::pair("max-num-batched-tokens", "max_num_batched_tokens"),
        std::pair("max-batch-size", "max_batch_size"),
        std::pair("max-queue-delay", "max_queue_delay"),
        std::pair("instance-count", "instance_count")}) {
    if (flags.Has(flag)) options.given.emplace_back(setting);
  }
  std::vector<std::string> rest = flags.rest();
  const bool measured = flags.RestHas("url", "-u");
  if (!measured) {
    for (const std::string& arg : rest) {
      if (arg.starts_with('-')) {
        return InvalidArgument(
            arg + " is for measuring a server; name it with --url");
      }
    }
    options.reports = std::move(rest);
    if (!options.reports.empty()) return options;
    return InvalidArgument(
        "plan fit needs --url of a server to measure, or reports of "
        "millrace-loadtest --json");
  }
  if (!flags.RestHas("duration") && !flags.RestHas("num-requests", "-n")) {
    rest.insert(rest.end(), {"--duration", "5s"});
  }
  ASSIGN_OR_RETURN(options.load, ParseOptions(rest));
  model.graph = !TakesText(options.load.endpoint);
  if (!model.graph) options.load.streaming = true;
  if (options.load.open_loop) {
    return InvalidArgument(
        "plan fit sets the load itself; choose it with --loads 1,2,4,8");
  }
  return options;
}

std::string PlanHelpText() {
  return "millrace-loadtest plan --server-model FILE [flags]\n"
         "                          simulates a fleet of servers\n"
         "  --server-model FILE     JSON of step prices, as plan fit writes "
         "it\n"
         "  --replicas arg          auto: the fewest that meet --slo "
         "(default); 1,2,4: each;\n"
         "                          2:20: scales between these\n"
         "  --routing arg           round-robin, least-loaded (default) or "
         "prefix\n"
         "  --prefix-groups N       requests of one group begin with the same\n"
         "                          --shared-prefix-tokens\n"
         "  --start-time arg        until a new replica serves (what the "
         "server model\n"
         "                          says, else 60s)\n"
         "  --target-load arg       requests under way per replica that "
         "scaling "
         "aims at\n"
         "                          (half of what one runs at once)\n"
         "  --scale-interval arg    between two decisions (10s)\n"
         "  --lose S@T[:D]          a share S of the replicas stops at time T, "
         "for D\n"
         "  --price-per-hour arg    of one replica, for costs\n"
         "and of a measurement: --request-rate, --arrival, --burst-size, "
         "--dataset,\n--trace-speed, --num-requests (10000), --duration, "
         "--input-tokens,\n--output-tokens, --batch-size, --random-seed, "
         "--slo, "
         "--max-error-rate,\n--json, --html.\n\n"
         "millrace-loadtest plan fit --url ADDRESS [flags of a measurement]\n"
         "millrace-loadtest plan fit REPORT.json...\n"
         "                          makes a server model from measurements\n"
         "  --loads arg             concurrencies to measure (1,2,4,8)\n"
         "  --rows arg              of a graph: batch sizes to measure "
         "(1,2,4,8);\n"
         "                          1 alone: shapes and files as they are "
         "given\n"
         "  --output FILE           (server-model.json)\n"
         "  --kv-tokens, --max-num-seqs, --max-num-batched-tokens,\n"
         "  --max-batch-size, --max-queue-delay, --instance-count\n"
         "                          the server's own settings; read from "
         "a Millrace\n\n"
         "Exit status: 0 simulated, 1 failed, 2 wrong flags, 3 the SLO was "
         "missed.\n";
}

}  // namespace millrace::loadtest
