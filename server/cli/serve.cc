// millrace serve [[NAME=]MODEL…] [--config FILE] [flags]. Settings come from
// config/load; this verb only tells models from flags, shows the progress of
// loading, and waits for the signal to stop.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "config/base/terminal.h"
#include "config/base/wrap.h"
#include "config/effect.h"
#include "config/load.h"
#include "config/topology.h"
#include "models/group/mpi/process_group.h"
#include "server/app.h"
#include "server/cli/examples.h"
#include "server/cli/model_kind.h"
#include "server/cli/pull_models.h"
#include "server/cli/serve_flags.h"
#include "server/cli/verbs.h"
#include "server/lifecycle/load_graph.h"
#include "server/lifecycle/tensor_parallel.h"
#include "server/pull/cache_entry.h"
#include "server/shutdown.h"
#include "server/torchserve/profile.h"

namespace millrace::server {
namespace {

constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct.Q4_1.gguf";

struct CommandLine {
  config::Sources sources;
  std::vector<std::string> sha256;  // of the models, in their order
  bool pull = false;
  bool exit_on_error = true;  // of a model of the start
  bool help = false;
  bool help_all = false;
  bool print_config = false;
  std::optional<torchserve::ProfileSources> torchserve = {};
};

void TakeTorchServeFlag(std::string_view name, std::string value,
                        torchserve::ProfileSources& sources) {
  if (name == "model-store") sources.model_store = std::move(value);
  if (name == "workflow-store") sources.workflow_store = std::move(value);
  if (name == "grpc-management-port") {
    sources.grpc_management_port = std::move(value);
  }
  if (name == "ts-config") sources.ts_config = std::move(value);
  if (name == "disable-token-auth") sources.disable_token_auth = true;
  if (name == "enable-model-api") sources.enable_model_api = true;
}

// Whether the line says --profile torchserve; it decides what other words mean.
StatusOr<bool> IsTorchServeProfile(Args args) {
  for (size_t i = 0; i < args.size(); ++i) {
    const bool apart = args[i] == "--profile" && i + 1 < args.size();
    if (!apart && !args[i].starts_with("--profile=")) continue;
    const std::string name = apart ? args[i + 1] : args[i].substr(10);
    if (name == "torchserve") return true;
    return InvalidArgument("--profile is '" + name +
                           "' but torchserve is the only profile there is");
  }
  return false;
}

// "name=path" or "path"; a path that exists as written is never split.
config::ModelSettings ModelArgument(const std::string& text) {
  config::ModelSettings model;
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || text.find('/') < equals ||
      std::filesystem::exists(text)) {
    model.path = text;
  } else {
    model.name = text.substr(0, equals);
    model.path = text.substr(equals + 1);
  }
  return model;
}

// A flag of ServeFlags by its name.
Status TakeFlag(std::string_view name, const std::string& value,
                CommandLine& line) {
  if (name == "config") {
    line.sources.config_file = value;
  } else if (name == "model") {
    line.sources.models.push_back(ModelArgument(value));
  } else if (name == "print-config") {
    line.print_config = true;
  } else if (name == "pull") {
    line.pull = true;
  } else if (name == "model-sha256") {
    line.sha256.push_back(value);
  } else if (name == "exit-on-error") {
    if (value != "true" && value != "false") {
      return InvalidArgument("--exit-on-error is '" + value +
                             "' but must be true or false");
    }
    line.exit_on_error = value == "true";
  } else if (name == "help-all") {
    line.help = line.help_all = true;
  }
  return OkStatus();  // what --profile says is known before
}

StatusOr<CommandLine> Parse(Args args) {
  CommandLine line;
  ASSIGN_OR_RETURN(const bool torchserve, IsTorchServeProfile(args));
  if (torchserve) line.torchserve.emplace();
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h") {
      line.help = true;
      continue;
    }
    if (arg.size() < 2 || arg[0] != '-') {
      if (arg.ends_with(".yaml") || arg.ends_with(".yml")) {
        return InvalidArgument("'" + arg +
                               "' is no model; for a file of settings say "
                               "--config " +
                               arg);
      }
      line.sources.models.push_back(ModelArgument(arg));
      continue;
    }
    std::string name = arg.substr(arg[1] == '-' ? 2 : 1);
    std::optional<std::string> value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (torchserve && name == "models") {  // all words up to the next flag
      if (value.has_value()) line.torchserve->models.push_back(*value);
      while (i + 1 < args.size() && !args[i + 1].starts_with('-')) {
        line.torchserve->models.push_back(args[++i]);
      }
      continue;
    }
    const ServeFlag* const ours = FindServeFlag(ServeFlags(), name);
    const ServeFlag* const theirs =
        torchserve ? FindServeFlag(TorchServeFlags(), name) : nullptr;
    const ServeFlag* const flag = theirs != nullptr ? theirs : ours;
    bool is_switch = flag != nullptr && flag->value.empty();
    if (flag == nullptr) {
      const config::FlagKind kind = config::KindOfFlag(name);
      if (kind == config::FlagKind::kUnknown) return config::UnknownFlag(name);
      is_switch = kind == config::FlagKind::kSwitch;
    } else if (is_switch && value.has_value()) {
      return InvalidArgument("--" + name + " takes no value");
    }
    if (!value.has_value()) {
      if (is_switch) {
        value = "true";
      } else if (i + 1 < args.size()) {
        value = args[++i];
      } else {
        return InvalidArgument(arg + " needs a value after it");
      }
    }
    if (theirs != nullptr) {
      TakeTorchServeFlag(theirs->name, *std::move(value), *line.torchserve);
    } else if (ours != nullptr) {
      RETURN_IF_ERROR(TakeFlag(ours->name, *value, line));
    } else {
      line.sources.flags.emplace_back(name, *value);
    }
  }
  return line;
}

std::string HelpText(bool all) {
  const size_t width = HelpWidth();
  std::string text =
      "usage: millrace serve [[NAME=]MODEL…] [--config FILE] [flags]\n\n";
  text += WrapText(
      "Serves each MODEL (a GGUF file, a Hugging Face folder with safetensors, "
      "an ONNX graph, a PyTorch export .pt2, or the address of a model that "
      "`millrace pull` has brought) as NAME, or as the file's stem "
      "or the folder's name; without one, those of --model-repository, or the "
      "default model that deploy/install_deps.sh puts in the cache.\n"
      "\n"
      "Every flag is also a key of the YAML file and an environment variable: "
      "--http-port, http_port, MILLRACE_HTTP_PORT. Flags win over environment, "
      "environment over file.\n"
      "\n",
      0, width);
  constexpr size_t kColumn = 32;
  for (const ServeFlag& flag : ServeFlags()) {
    if (flag.in_help == (all ? InHelp::kBrief : InHelp::kFull)) continue;
    std::string shown = "  --" + std::string(flag.name);
    if (!flag.value.empty()) shown.append(" ").append(flag.value);
    text += HelpEntry(shown, flag.help, kColumn, width);
  }
  return text + "\n" + config::FlagsHelp(width, all) + ExamplesText("serve");
}

// A bar in the terminal's last line; the log has begin and end either way.
void ShowProgress(const LoadProgress::State& state) {
  if (state.model.empty()) return ShowStatusLine("");
  constexpr int kWidth = 30;
  std::string line = "loading " + state.model;
  char numbers[40];
  if (state.done >= 0) {  // else how far it is is not known
    const int filled = static_cast<int>(state.done * kWidth);
    std::snprintf(numbers, sizeof numbers, "] %3.0f%%", state.done * 100);
    line += " [" + std::string(filled, '#') +
            std::string(kWidth - filled, '.') + numbers;
  }
  std::snprintf(numbers, sizeof numbers, " %.1f s", state.seconds);
  ShowStatusLine(line + numbers);
}

StatusOr<config::ModelSettings> DefaultModel() {
  const std::filesystem::path path = CacheFolder() / "models" / kDefaultModel;
  if (!std::filesystem::exists(path)) {
    return NotFound(
        "no model was named and the default one is not in the cache (" +
        path.string() +
        "); run deploy/install_deps.sh to get it, or name a GGUF file or a "
        "Hugging "
        "Face folder: millrace serve model.gguf");
  }
  config::ModelSettings model;
  model.path = path.string();
  return model;
}

StatusOr<config::Loaded> LoadSettings(config::Sources sources) {
  ASSIGN_OR_RETURN(config::Loaded loaded, config::Load(sources));
  if (!loaded.settings.models.empty() ||
      !loaded.settings.server.model_repository.empty()) {
    return loaded;
  }
  // Neither the command line nor the file names one. Loading again gives the
  // default model what the file, the environment and the flags say of models.
  ASSIGN_OR_RETURN(config::ModelSettings model, DefaultModel());
  sources.models.push_back(std::move(model));
  return config::Load(sources);
}

std::vector<std::string> WarningsOf(const config::Loaded& loaded) {
  std::vector<std::string> warnings = loaded.warnings;
  config::EffectFacts facts;
  for (const config::ModelSettings& model : loaded.settings.models) {
    std::error_code ignored;
    // The load will say so.
    if (!std::filesystem::exists(model.path, ignored)) return warnings;
    facts.is_graph.push_back(IsGraphFile(model.path));
  }
  if (const auto topology = config::Topology::Detect(); topology.ok()) {
    facts.num_cores = static_cast<int64_t>(topology->cores().size());
  }
  for (std::string& sentence : config::SettingsWithoutEffect(loaded, facts)) {
    warnings.push_back(std::move(sentence));
  }
  return warnings;
}

// Marks what is wrong with a model, not with the command line.
constexpr std::string_view kOfModel = "model";

Status OfModel(const Status& status) {
  return status.ok() ? status : status.Because(kOfModel);
}

// As verbs.h says: a model's file or configuration that cannot be served is no
// mistake of the command line.
int ExitCodeOf(const Status& status) {
  if (status.ok()) return 0;
  const bool is_of_settings = status.code() == StatusCode::kInvalidArgument ||
                              status.field() == "config";
  return is_of_settings && status.reason() != kOfModel ? 2 : 1;
}

// What every other verb says of a path that is no model, before ports are bound
// and other models are loaded.
Status CheckPaths(const std::vector<config::ModelSettings>& models) {
  for (const config::ModelSettings& model : models) {
    if (model.path.empty()) {
      return InvalidArgument("model '" + model.name + "' has no path; say " +
                             model.name + "=PATH");
    }
    RETURN_IF_ERROR(OfModel(FileKindOf(model.path).status()));
  }
  return OkStatus();
}

using models::mpi::ProcessGroup;

// Null: the model is served by this process alone.
StatusOr<std::shared_ptr<ProcessGroup>> JoinGroup(
    const config::Settings& settings) {
  ASSIGN_OR_RETURN(const int64_t size, TensorParallelSize(settings));
  if (size == 1) return std::shared_ptr<ProcessGroup>();
  const int64_t timeout_ms =
      settings.models.front().llm.tensor_parallel_timeout_ms;
  return models::mpi::Join({.timeout_ms = timeout_ms});
}

// All ranks find the same.
Status CheckSize(const config::Settings& settings, const ProcessGroup& group) {
  const int64_t size = settings.models.front().llm.tensor_parallel_size;
  if (size == group.size()) return OkStatus();
  return InvalidArgument("tensor_parallel_size is " + std::to_string(size) +
                         ", but mpirun started " +
                         std::to_string(group.size()) +
                         (group.size() == 1 ? " process" : " processes") +
                         "; say mpirun -np " + std::to_string(size));
}

Status Serve(Args args, std::shared_ptr<ProcessGroup>* joined) {
  ASSIGN_OR_RETURN(const CommandLine line, Parse(args));
  if (line.help) {
    std::fputs(HelpText(line.help_all).c_str(), stdout);
    return OkStatus();
  }
  config::Sources sources = line.sources;
  std::optional<torchserve::Profile> profile;
  if (line.torchserve.has_value()) {
    if (!sources.models.empty()) {
      return InvalidArgument("'" + sources.models.front().path +
                             "' is no flag; with --profile torchserve models "
                             "are named by --models NAME=FILE");
    }
    ASSIGN_OR_RETURN(profile, torchserve::ReadProfile(*line.torchserve));
    // Flags of ours win, for they come last.
    sources.flags.insert(sources.flags.begin(), profile->flags.begin(),
                         profile->flags.end());
  }
  ASSIGN_OR_RETURN(config::Loaded loaded, profile.has_value()
                                              ? config::Load(sources)
                                              : LoadSettings(sources));
  if (!line.print_config) {
    RETURN_IF_ERROR(PullModels(line.pull, &loaded.settings.models));
    RETURN_IF_ERROR(config::CheckModelIds(loaded.settings.models, sources));
  }
  std::vector<std::string> warnings = WarningsOf(loaded);
  if (profile.has_value()) {
    warnings.insert(warnings.end(), profile->warnings.begin(),
                    profile->warnings.end());
  }
  if (line.print_config) {
    for (const std::string& warning : warnings) {
      std::fprintf(stderr, "warning: %s\n", warning.c_str());
    }
    std::fputs(config::Dump(loaded).c_str(), stdout);
    return OkStatus();
  }
  RETURN_IF_ERROR(CheckPaths(loaded.settings.models));
  RETURN_IF_ERROR(CheckSums(line.sha256, loaded.settings.models));
  const config::ServerSettings& server = loaded.settings.server;
  ASSIGN_OR_RETURN(const LogLevel level, ParseLogLevel(server.log_level));
  ASSIGN_OR_RETURN(const LogFormat format, ParseLogFormat(server.log_format));
  SetUpLog(level, format);
  BlockStopSignals();
  ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> group,
                   JoinGroup(loaded.settings));
  if (group != nullptr) {
    *joined = group;
    RETURN_IF_ERROR(CheckSize(loaded.settings, *group));
    if (group->rank() > 0) return FollowRankZero(loaded.settings, group);
  }
  for (const std::string& warning : warnings) {
    LogWarning("a setting has no effect", {{"why", warning}});
  }

  App::Options options;
  options.group = group;
  if (ObeysEscapes(STDERR_FILENO)) options.show = ShowProgress;
  options.on_failed = SendStopSignal;
  options.exit_on_error = line.exit_on_error;
  if (profile.has_value()) options.torchserve = std::move(profile->registry);
  ASSIGN_OR_RETURN(std::unique_ptr<App> app,
                   App::Start(loaded.settings, std::move(options)));
  WaitForStopSignal();
  const bool loading = app->loading();
  ExitOnNextStopSignal();
  app->Shutdown();
  if (loading) {  // which cannot be interrupted
    app->RemoveFiles();
    _exit(0);
  }
  return OfModel(app->load_status());
}

// Rank 0 says what is wrong and ends the others with it. They do so where they
// lost rank 0, which has this time to be the first to tell of a lost group.
constexpr unsigned kRankZeroFirstSeconds = 3;

bool Tells(const Status& status, const ProcessGroup* group) {
  if (status.ok()) return false;
  if (group == nullptr || group->rank() == 0) return true;
  if (status.code() != StatusCode::kUnavailable) return false;
  sleep(kRankZeroFirstSeconds);
  return true;
}

int EndOfRank(const Status& status, int exit_code, ProcessGroup& group) {
  if (status.ok()) {
    group.Leave();
    return 0;
  }
  if (group.rank() == 0 || status.code() == StatusCode::kUnavailable) {
    group.Abort(exit_code);
  }
  group.Leave();
  return exit_code;
}

}  // namespace

int RunServe(Args args) {
  std::shared_ptr<ProcessGroup> group;
  const Status status = Serve(args, &group);
  const int exit_code = ExitCodeOf(status);
  if (Tells(status, group.get())) {
    std::fprintf(stderr, "millrace serve: %s\n",
                 std::string(status.message()).c_str());
  }
  return group == nullptr ? exit_code : EndOfRank(status, exit_code, *group);
}

}  // namespace millrace::server
