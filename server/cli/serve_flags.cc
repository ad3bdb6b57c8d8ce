#include "server/cli/serve_flags.h"

#include <algorithm>
#include <string>

namespace millrace::server {
namespace {

constexpr ServeFlag kServeFlags[] = {
    {"config", "FILE", "settings in YAML", InHelp::kAlways},
    {"model",
     "MODEL",
     "as the argument MODEL; also -m",
     InHelp::kAlways,
     {},
     {"m", "model-path"}},
    {"print-config", "", "the effective settings and where each comes from",
     InHelp::kAlways},
    {"profile",
     "torchserve",
     "TorchServe's ports, APIs, archives and command line: --model-store, "
     "--models, --ts-config, --ncs, --enable-model-api, --disable-token-auth",
     InHelp::kFull,
     {"torchserve"}},
    {"pull", "",
     "pull models given by address (hf://org/repo) that the cache lacks"},
    {"model-sha256", "DIGEST",
     "of the model's file, checked at start; one for each model, in their "
     "order"},
    {"exit-on-error",
     "BOOL",
     "false: a model that cannot be loaded at the start is left out and the "
     "others serve; true: the server ends (default true; mode poll never ends "
     "for it)",
     InHelp::kFull,
     {"true", "false"}},
    {"help-all", "", "every flag, with bounds and aliases", InHelp::kBrief},
};

constexpr ServeFlag kTorchServeFlags[] = {
    {"model-store", "FOLDER", "archives of TorchServe"},
    {"models", "MODEL…", "all, or archives to register at the start"},
    {"ts-config", "FILE", "TorchServe's config.properties"},
    {"workflow-store", "FOLDER", "archives of workflows"},
    {"grpc-management-port", "PORT", "of TorchServe's management over gRPC"},
    {.name = "enable-model-api",
     .help = "models may be registered and removed by requests",
     .also = {"model-api-enabled"}},
    {.name = "disable-token-auth",
     .help = "no keys are made and wanted",
     .also = {"disable-token", "dt"}},
    {.name = "start", .help = "no effect: a server starts"},
    {.name = "foreground", .help = "no effect: it stays in the foreground"},
    {.name = "no-config-snapshots",
     .help = "no effect: there are no snapshots",
     .also = {"ncs"}},
    {"log-config", "FILE", "no effect: --log-level and --log-format set it"},
    {"cpp-log-config", "FILE",
     "no effect: --log-level and --log-format set it"},
    {.name = "plugins-path",
     .value = "FOLDER",
     .help = "no effect: there are no plugins",
     .also = {"ppath"}},
};

}  // namespace

std::span<const ServeFlag> ServeFlags() { return kServeFlags; }
std::span<const ServeFlag> TorchServeFlags() { return kTorchServeFlags; }

const ServeFlag* FindServeFlag(std::span<const ServeFlag> flags,
                               std::string_view name) {
  if (name.empty()) return nullptr;
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const auto found =
      std::find_if(flags.begin(), flags.end(), [&](const ServeFlag& flag) {
        return wanted == flag.name ||
               std::count(flag.also.begin(), flag.also.end(), wanted) > 0;
      });
  return found == flags.end() ? nullptr : &*found;
}

}  // namespace millrace::server
