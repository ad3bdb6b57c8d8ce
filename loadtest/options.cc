// Boost.Program_options cuts the command line by the list of option_flags.h;
// what values mean and which flags go together is checked here, so that each
// error names its remedy.
#include "loadtest/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "loadtest/input_files.h"
#include "loadtest/option_flags.h"
#include "loadtest/option_values.h"

namespace millrace::loadtest {
namespace {

namespace po = boost::program_options;
using std::chrono::nanoseconds;
using std::chrono::seconds;

using Text = std::string;
using Texts = std::vector<std::string>;

// The values of one command line, with our errors.
class Flags {
 public:
  explicit Flags(const po::variables_map& map) : map_(map) {}

  bool Has(const char* name) const {
    return map_.count(name) > 0 && !map_[name].defaulted();
  }
  bool On(const char* name) const { return map_[name].as<bool>(); }
  Text Str(const char* name, const Text& otherwise = "") const {
    return Has(name) ? map_[name].as<Text>() : otherwise;
  }
  Texts Many(const char* name) const {
    return Has(name) ? map_[name].as<Texts>() : Texts();
  }
  StatusOr<int64_t> Int(const char* name, int64_t otherwise, int64_t least,
                        int64_t most) const {
    if (!Has(name)) return otherwise;
    return ParseInt(name, Str(name), least, most);
  }
  StatusOr<double> Real(const char* name, double otherwise, double least,
                        double most) const {
    if (!Has(name)) return otherwise;
    return ParseReal(name, Str(name), least, most);
  }
  StatusOr<nanoseconds> Duration(const char* name,
                                 nanoseconds otherwise) const {
    if (!Has(name)) return otherwise;
    StatusOr<nanoseconds> value = ParseDuration(Str(name));
    if (value.ok() && value->count() <= 0) {
      return InvalidArgument(std::string("--") + name +
                             " is 0; it must be longer");
    }
    if (value.ok()) return value;
    return std::move(value).status().Prefixed(std::string("--") + name);
  }

 private:
  const po::variables_map& map_;
};

Status ReadTarget(const Flags& flags, Options& options) {
  const Text type = flags.Str("endpoint-type", "chat");
  const auto endpoint = EndpointOf(type);
  if (!endpoint) {
    return InvalidArgument("--endpoint-type '" + type +
                           "' is unknown; it is one of chat, completions, "
                           "embeddings, kserve, kserve-grpc and torchserve");
  }
  options.endpoint = *endpoint;
  const bool grpc = *endpoint == EndpointType::kKserveGrpc;
  options.url_text =
      flags.Str("url", grpc ? "127.0.0.1:8001" : "http://127.0.0.1:8000");
  ASSIGN_OR_RETURN(options.url,
                   ParseUrl(options.url_text, grpc ? "8001" : "80"));
  options.url.ca_file = flags.Str("cacert");
  options.url.insecure = flags.On("insecure");
  if (!options.url.ca_file.empty() && !std::ifstream(options.url.ca_file)) {
    return InvalidArgument("--cacert '" + options.url.ca_file +
                           "' cannot be read; check its path");
  }
  if (grpc && options.url.insecure) {
    return InvalidArgument(
        "--insecure is for https:// alone: gRPC always checks the server's "
        "certificate; name its authority with --cacert");
  }
  options.model = flags.Str("model");
  options.path = flags.Str("endpoint");
  if (!options.path.empty() && !options.path.starts_with('/')) {
    return InvalidArgument("--endpoint '" + options.path +
                           "' must begin with /, as in /v1/chat/completions");
  }
  options.streaming = flags.On("streaming");
  if (options.streaming && !Generates(options.endpoint)) {
    return InvalidArgument(
        "--streaming needs --endpoint-type chat or "
        "completions; '" +
        type + "' has no token stream");
  }
  for (const Text& header : flags.Many("header")) {
    ASSIGN_OR_RETURN(auto pair, ParsePair("header", header));
    options.headers.push_back(std::move(pair));
  }
  if (flags.Has("api-key")) {
    options.headers.emplace_back("Authorization",
                                 "Bearer " + flags.Str("api-key"));
  }
  for (const auto& [name, value] : options.headers) {
    if ((name + value).find_first_of("\r\n") != Text::npos) {
      return InvalidArgument("header '" + name + "' holds a line break");
    }
  }
  ASSIGN_OR_RETURN(options.request_timeout,
                   flags.Duration("request-timeout", seconds(120)));
  return OkStatus();
}

Status ReadOpenLoop(const Flags& flags, Options& options) {
  const Text arrival = flags.Str("arrival", "constant");
  static constexpr std::pair<std::string_view, ArrivalKind> kKinds[] = {
      {"constant", ArrivalKind::kConstant},
      {"poisson", ArrivalKind::kPoisson},
      {"burst", ArrivalKind::kBurst},
      {"trace", ArrivalKind::kTrace}};
  const auto* kind =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const auto& known) { return known.first == arrival; });
  if (kind == std::end(kKinds)) {
    return InvalidArgument("--arrival '" + arrival +
                           "' is unknown; it is one of constant, poisson, "
                           "burst and trace");
  }
  options.arrivals.kind = kind->second;
  const bool trace = options.arrivals.kind == ArrivalKind::kTrace;
  const bool rate = flags.Has("request-rate") || options.sweep.over_rate;
  options.open_loop = rate || trace;
  if (flags.Has("arrival") && !options.open_loop) {
    return InvalidArgument("--arrival " + arrival + " needs --request-rate");
  }
  if (trace && rate) {
    return InvalidArgument(
        "--arrival trace takes its times from --dataset; "
        "leave out --request-rate, or set --trace-speed");
  }
  if (trace && !flags.Has("dataset")) {
    return InvalidArgument(
        "--arrival trace needs --dataset FILE with a "
        "timestamp in each line");
  }
  if (options.open_loop && flags.Has("concurrency")) {
    return InvalidArgument(
        "--concurrency is of a closed loop and the rate of "
        "an open one; give one of them, and limit an open "
        "loop with --max-connections");
  }
  if (!options.open_loop && flags.Has("max-connections")) {
    return InvalidArgument(
        "--max-connections limits an open loop; a closed "
        "one has --concurrency connections");
  }
  ASSIGN_OR_RETURN(options.arrivals.rate,
                   flags.Real("request-rate", 1, 1e-4, 1e7));
  if (trace) {
    ASSIGN_OR_RETURN(options.arrivals.rate,
                     flags.Real("trace-speed", 1, 1e-4, 1e6));
  }
  ASSIGN_OR_RETURN(options.arrivals.burst_size,
                   flags.Int("burst-size", 10, 1, 1'000'000));
  ASSIGN_OR_RETURN(options.max_connections,
                   flags.Int("max-connections", 1024, 1, 60'000));
  return OkStatus();
}

Status ReadLoad(const Flags& flags, Options& options) {
  if (flags.Has("sweep")) {
    ASSIGN_OR_RETURN(options.sweep, ParseSweep(flags.Str("sweep")));
    for (const char* fixed : {"concurrency", "request-rate"}) {
      if (flags.Has(fixed)) {
        return InvalidArgument(std::string("--sweep sets the load itself; "
                                           "leave out --") +
                               fixed);
      }
    }
  }
  RETURN_IF_ERROR(ReadOpenLoop(flags, options));
  ASSIGN_OR_RETURN(options.concurrency, flags.Int("concurrency", 1, 1, 60'000));
  ASSIGN_OR_RETURN(options.num_requests,
                   flags.Int("num-requests", -1, 1, 1'000'000'000));
  ASSIGN_OR_RETURN(options.duration, flags.Duration("duration", seconds(0)));
  const bool trace = options.arrivals.kind == ArrivalKind::kTrace;
  if (options.num_requests < 0 && options.duration.count() == 0 && !trace) {
    options.num_requests = 100;
  }
  ASSIGN_OR_RETURN(options.grace, flags.Duration("grace-period", seconds(30)));
  if (flags.Has("warmup")) {
    const Text warmup = flags.Str("warmup");
    const bool count =
        warmup.find_first_not_of("0123456789") == std::string::npos;
    if (count) {
      ASSIGN_OR_RETURN(options.warmup_requests,
                       flags.Int("warmup", 0, 0, 1'000'000'000));
    } else {
      ASSIGN_OR_RETURN(options.warmup_time,
                       flags.Duration("warmup", seconds(0)));
    }
  }
  ASSIGN_OR_RETURN(options.repetitions, flags.Int("repetitions", 1, 1, 1000));
  ASSIGN_OR_RETURN(options.threads, flags.Int("client-threads", 1, 1, 64));
  ASSIGN_OR_RETURN(options.cpus, ParseCpus(flags.Str("client-cpus")));
  ASSIGN_OR_RETURN(const int64_t seed,
                   flags.Int("random-seed", 0, 0, int64_t{1} << 53));
  options.seed = static_cast<uint64_t>(seed);
  options.arrivals.seed = options.seed;
  return OkStatus();
}

Status ReadText(const Flags& flags, Options& options) {
  options.dataset = flags.Str("dataset");
  ASSIGN_OR_RETURN(options.input_tokens,
                   ParseTokenCount("input-tokens", flags.Str("input-tokens")));
  ASSIGN_OR_RETURN(
      options.output_tokens,
      ParseTokenCount("output-tokens", flags.Str("output-tokens")));
  options.ignore_eos = !flags.On("no-ignore-eos");
  ASSIGN_OR_RETURN(options.shared_prefix_tokens,
                   flags.Int("shared-prefix-tokens", 0, 0, 10'000'000));
  ASSIGN_OR_RETURN(options.num_prompts,
                   flags.Int("num-prompts", 0, 1, 1'000'000));
  ASSIGN_OR_RETURN(options.turns, flags.Int("turns", 1, 1, 1000));
  const bool text = TakesText(options.endpoint);
  for (const char* name : {"dataset", "input-tokens", "output-tokens",
                           "shared-prefix-tokens", "num-prompts", "turns"}) {
    if (flags.Has(name) && !text) {
      return InvalidArgument(std::string("--") + name +
                             " is for text; --endpoint-type " +
                             std::string(EndpointName(options.endpoint)) +
                             " takes --input, --shape or --data");
    }
    const std::string_view word = name;
    if (flags.Has(name) && !options.dataset.empty() && word != "dataset" &&
        word != "output-tokens") {
      return InvalidArgument("--" + std::string(word) +
                             " is for synthetic prompts; leave it out or "
                             "leave out --dataset");
    }
  }
  if (options.turns > 1 && options.endpoint != EndpointType::kChat) {
    return InvalidArgument("--turns needs --endpoint-type chat");
  }
  for (const Text& extra : flags.Many("extra-input")) {
    ASSIGN_OR_RETURN(auto pair, ParsePair("extra-input", extra));
    if (!nlohmann::json::accept(pair.second)) {
      pair.second = nlohmann::json(pair.second).dump();
    }
    options.extra_inputs.push_back(std::move(pair));
  }
  return OkStatus();
}

Status ReadTensors(const Flags& flags, Options& options) {
  ASSIGN_OR_RETURN(options.batch_size, flags.Int("batch-size", 1, 1, 65536));
  for (const Text& shape : flags.Many("shape")) {
    ASSIGN_OR_RETURN(auto named, ParseShape(shape));
    options.shapes.push_back(std::move(named));
  }
  for (const Text& input : flags.Many("input")) {
    ASSIGN_OR_RETURN(auto pair, ParsePair("input", input));
    ASSIGN_OR_RETURN(auto files, FilesAt("--input", pair.second));
    for (Text& file : files) {
      options.input_files.emplace_back(pair.first, std::move(file));
    }
  }
  const Text format = flags.Str("tensor-format", "binary");
  if (format != "binary" && format != "json") {
    return InvalidArgument("--tensor-format '" + format +
                           "' is unknown; it is binary or json");
  }
  options.binary_tensors = format == "binary";
  for (const Text& data : flags.Many("data")) {
    ASSIGN_OR_RETURN(auto files, FilesAt("--data", data));
    options.data_files.insert(options.data_files.end(), files.begin(),
                              files.end());
  }
  options.content_type = flags.Str("content-type", options.content_type);
  const bool serve = options.endpoint == EndpointType::kTorchserve;
  if (serve && options.data_files.empty()) {
    return InvalidArgument(
        "--endpoint-type torchserve needs --data FILE, the "
        "body of each request");
  }
  return OkStatus();
}

Status ReadReport(const Flags& flags, Options& options) {
  options.slo_text = flags.Str("slo");
  if (flags.Has("slo")) {
    ASSIGN_OR_RETURN(options.slo, ParseSlo(options.slo_text));
    for (const Objective& objective : options.slo) {
      if (objective.metric != Metric::kLatency && !options.streaming) {
        return InvalidArgument(
            "--slo names " + std::string(MetricName(objective.metric)) +
            ", which only a stream shows; add --streaming or bound latency");
      }
    }
  }
  ASSIGN_OR_RETURN(options.max_error_rate,
                   flags.Real("max-error-rate", 0.01, 0, 1));
  options.json_file = flags.Str("json");
  options.csv_file = flags.Str("csv");
  options.html_file = flags.Str("html");
  options.progress = !flags.On("no-progress");
  return OkStatus();
}

Status CheckModel(const Options& options) {
  if (!options.model.empty() || TakesText(options.endpoint)) return OkStatus();
  return InvalidArgument("--endpoint-type " +
                         std::string(EndpointName(options.endpoint)) +
                         " needs --model NAME");
}

}  // namespace

StatusOr<Options> ParseOptions(const std::vector<std::string>& args) {
  po::variables_map map;
  const po::options_description all = AllFlags();
  try {
    namespace style = po::command_line_style;
    po::store(po::command_line_parser(args)
                  .options(all)
                  .positional(po::positional_options_description())
                  .style(style::unix_style & ~style::allow_guessing)
                  .run(),
              map);
  } catch (const po::unknown_option& unknown) {
    std::string name = unknown.get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    std::vector<std::string> known;
    for (const auto& flag : all.options()) known.push_back(flag->long_name());
    const std::string nearest = Nearest(name, known);
    return InvalidArgument(
        "there is no flag --" + name +
        (nearest.empty() ? "" : "; the nearest one is --" + nearest) +
        " (see --help)");
  } catch (const po::error& error) {
    return InvalidArgument(std::string(error.what()) + "; see --help");
  }
  const Flags flags(map);
  Options options;
  options.help = flags.On("help");
  if (options.help) return options;
  RETURN_IF_ERROR(ReadTarget(flags, options));
  RETURN_IF_ERROR(ReadLoad(flags, options));
  RETURN_IF_ERROR(ReadText(flags, options));
  RETURN_IF_ERROR(ReadTensors(flags, options));
  RETURN_IF_ERROR(ReadReport(flags, options));
  RETURN_IF_ERROR(CheckModel(options));
  return options;
}

std::string HelpText() {
  std::ostringstream out;
  out << "millrace-loadtest [flags]           puts load on a server and "
         "reports\n"
         "millrace-loadtest compare A.json B.json    compares two reports\n"
         "millrace-loadtest tune --help       finds the best settings of a "
         "server\n"
         "millrace-loadtest plan --help       simulates a fleet of servers\n"
      << AllFlags()
      << "\nDurations carry their unit: 500us, 20ms, 1.5s, 3m, 1h.\n"
         "Exit status: 0 measured, 1 nothing could be measured, 2 wrong "
         "flags,\n3 an objective of --slo was missed.\n";
  return out.str();
}

}  // namespace millrace::loadtest
