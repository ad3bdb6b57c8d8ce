#include "loadtest/tune_options.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>

#include "loadtest/option_values.h"
#include "loadtest/own_flags.h"
#include "loadtest/server_process.h"

namespace millrace::loadtest {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;

// The millrace beside this program; else the one of PATH.
std::string Sibling() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = self.parent_path() / "millrace";
  return !error && std::filesystem::exists(beside, error) ? beside.string()
                                                          : "millrace";
}

bool IsGraphFile(const std::string& word) {
  return word.ends_with(".onnx") || word.ends_with(".pt2") ||
         word.ends_with(".pt");
}

std::string Milliseconds(nanoseconds time) {
  return std::to_string(duration_cast<milliseconds>(time).count()) + "ms";
}

// What -m or --model says, at most in the next word; `words`: how many it took.
std::optional<std::string> ModelAt(const std::vector<std::string>& args,
                                   size_t at, ptrdiff_t* words) {
  constexpr std::string_view kLong = "--model";
  constexpr std::string_view kShort = "-m";
  const std::string_view arg = args[at];
  *words = 1;
  if (arg == kLong || arg == kShort) {
    if (at + 1 == args.size()) return std::nullopt;
    *words = 2;
    return args[at + 1];
  }
  if (arg.starts_with(kShort)) return std::string(arg.substr(kShort.size()));
  if (!arg.starts_with(kLong) || arg[kLong.size()] != '=') return std::nullopt;
  return std::string(arg.substr(kLong.size() + 1));
}

// The words of the server's command; takes -m FILE out of `rest` where that is
// a file rather than a name.
StatusOr<std::vector<std::string>> ServerWords(const OwnFlags& flags,
                                               std::vector<std::string>& rest) {
  std::vector<std::string> words;
  if (flags.Has("server-command")) {
    ASSIGN_OR_RETURN(words, SplitCommand(flags.Str("server-command")));
    if (words.size() < 2) {
      return InvalidArgument("--server-command '" +
                             flags.Str("server-command") +
                             "' must be like 'millrace serve MODEL --threads "
                             "4'");
    }
    if (words[0] == "millrace") words[0] = Sibling();
  } else {
    words = {Sibling(), "serve"};
    for (size_t i = 0; i < rest.size(); ++i) {
      ptrdiff_t taken = 0;
      const auto model = ModelAt(rest, i, &taken);
      if (!model) continue;
      if (!std::filesystem::exists(*model)) {
        return InvalidArgument("there is no model file '" + *model +
                               "'; without --server-command, --model is the "
                               "path of the model to serve");
      }
      words.push_back(*model);
      const auto at = rest.begin() + static_cast<ptrdiff_t>(i);
      rest.erase(at, at + taken);
      break;
    }
  }
  if (flags.Has("server")) words[0] = flags.Str("server");
  return words;
}

}  // namespace

StatusOr<TuneOptions> ParseTuneOptions(const std::vector<std::string>& args) {
  TuneOptions options;
  ASSIGN_OR_RETURN(
      const OwnFlags flags,
      OwnFlags::Cut(args, {"server", "server-command", "budget", "try",
                           "search", "rounds", "start-timeout", "output"}));
  if (flags.RestHas("help", "-h")) {
    options.help = true;
    return options;
  }
  options.args = args;
  for (const char* own :
       {"url", "sweep", "repetitions", "csv", "html", "json"}) {
    if (!flags.RestHas(own)) continue;
    return InvalidArgument(std::string("--") + own +
                           " does not go with tune, which starts the server "
                           "and chooses the loads itself; leave it out");
  }
  std::vector<std::string> rest = flags.rest();
  ASSIGN_OR_RETURN(options.server, ServerWords(flags, rest));
  options.tries = flags.Many("try");
  options.output = flags.Str("output", options.output);
  ASSIGN_OR_RETURN(options.budget, flags.Duration("budget", minutes(10)));
  ASSIGN_OR_RETURN(options.start_timeout,
                   flags.Duration("start-timeout", minutes(2)));
  ASSIGN_OR_RETURN(options.rounds, flags.Int("rounds", 3, 2, 100));
  const std::string search = flags.Str("search", "concurrency");
  if (search != "concurrency" && search != "request-rate") {
    return InvalidArgument("--search '" + search +
                           "' is unknown; it is concurrency or request-rate");
  }
  options.search_rate = search == "request-rate";
  for (const char* load : {"concurrency", "request-rate"}) {
    if (!flags.RestHas(load)) continue;
    return InvalidArgument(std::string("--") + load +
                           " is what tune looks for; say --search " + load);
  }
  const bool graph_file =
      std::any_of(options.server.begin(), options.server.end(), IsGraphFile);
  if (!flags.RestHas("endpoint-type") && graph_file) {
    rest.insert(rest.end(), {"--endpoint-type", "kserve"});
  }
  for (size_t i = 0; i < rest.size(); ++i) {
    ptrdiff_t unused = 0;
    options.model_named |= ModelAt(rest, i, &unused).has_value();
  }
  // The server says its name later.
  if (!options.model_named) rest.insert(rest.end(), {"--model", "unknown"});
  if (options.search_rate) rest.insert(rest.end(), {"--request-rate", "1"});
  const nanoseconds share = std::clamp<nanoseconds>(
      options.budget / 150, milliseconds(500), std::chrono::seconds(20));
  if (!flags.RestHas("duration") && !flags.RestHas("num-requests", "-n")) {
    rest.insert(rest.end(), {"--duration", Milliseconds(share)});
  }
  if (!flags.RestHas("warmup")) {
    rest.insert(rest.end(), {"--warmup", Milliseconds(share / 4)});
  }
  if (!flags.RestHas("grace-period")) {
    rest.insert(rest.end(), {"--grace-period", "10s"});
  }
  ASSIGN_OR_RETURN(options.load, ParseOptions(rest));
  if (options.load.slo.empty()) {
    return InvalidArgument(
        "tune needs --slo, the objectives that a load must meet, as in "
        "ttft:p99:500ms or latency:p99:100ms");
  }
  if (!options.model_named) options.load.model.clear();
  options.graph = !TakesText(options.load.endpoint);
  return options;
}

std::string TuneHelpText() {
  return "millrace-loadtest tune [flags]    finds the settings of a server "
         "that carry the\n"
         "                                  highest load within an SLO\n"
         "  --server-command TEXT   the server to start from, as in 'millrace "
         "serve MODEL\n"
         "                          --threads 8' (millrace serve)\n"
         "  --server PATH           its binary (millrace beside this "
         "program)\n"
         "  -m [ --model ] arg      without --server-command: file of the "
         "model to serve;\n"
         "                          with it: name of the model\n"
         "  --slo arg               objectives, as in ttft:p99:500ms; "
         "required\n"
         "  --search arg            the load to raise: concurrency (default) "
         "or request-rate\n"
         "  --try NAME=V1,V2        values of a setting, may be repeated; "
         "default: the usual\n"
         "                          settings of graphs or language models\n"
         "  --budget arg            time for everything (10m)\n"
         "  --rounds arg            in which the two finalists take turns "
         "(3)\n"
         "  --start-timeout arg     of a server (2m)\n"
         "  --output FILE           the best configuration "
         "(millrace-tuned.yaml)\n"
         "and the flags of a measurement that say what is sent "
         "(millrace-loadtest --help).\n"
         "Exit status: 0 written, 1 nothing could be measured, 2 wrong flags, "
         "3 no\nconfiguration met the SLO.\n";
}

}  // namespace millrace::loadtest
