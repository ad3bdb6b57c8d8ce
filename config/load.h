// Reads settings: built-in defaults < YAML file < MILLRACE_* environment <
// command-line flags. An unknown key is an error that names the nearest one.
//
//   StatusOr<Loaded> loaded = Load({.config_file = "millrace.yaml",
//                                   .flags = {{"http_port", "9000"}}});
//
// YAML keys are the setting names (snake_case); a flag is the name with dashes
// (--http-port), an environment variable is MILLRACE_HTTP_PORT. Aliases that
// users of other servers know (--ctx-size, -np, --port) are accepted. Values
// with units read as such: "5ms", "30s", "2GiB", "64MiB". A setting given for
// one model under `models:` wins over the file's general one; environment and
// flags win over both.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "config/environment.h"
#include "config/schema.h"

namespace millrace::config {

enum class Origin { kDefault, kFile, kEnvironment, kFlag };

struct Sources {
  std::string config_file = {};  // empty: none
  // In command-line order, names as typed without the leading dashes.
  std::vector<std::pair<std::string, std::string>> flags = {};
  // Name and path of models named on the command line; the file's come behind.
  std::vector<ModelSettings> models = {};
  // Looks an environment variable up; the process's own by default.
  std::function<std::optional<std::string>(const std::string&)> getenv = {};
  // All variables, to warn of those that are no setting; the process's own by
  // default, none where only `getenv` is given.
  std::function<Environment()> environment = {};
};

struct Loaded {
  Settings settings;
  // By setting name; a model's own setting is "models[0].threads".
  std::map<std::string, Origin> origins;
  // What was given and has no effect, one sentence each.
  std::vector<std::string> warnings = {};
};

StatusOr<Loaded> Load(const Sources& sources);

// INVALID_ARGUMENT where two models have one id. That of an address is known
// once its path is that of the file or folder which was pulled: until then it
// is not compared. Load asks; who replaces addresses by paths asks again.
Status CheckModelIds(const std::vector<ModelSettings>& models,
                     const Sources& sources);

// The effective configuration as YAML, each line with its origin as a comment.
// Secrets are shown as "***".
std::string Dump(const Loaded& loaded);

// The flags part of --help, in groups, wrapped to `width` columns. Not `all`:
// those that most people need, with their defaults. All: every one, with unit,
// bounds, default and aliases.
std::string FlagsHelp(size_t width, bool all);

// One flag of each setting, for completions of shells.
struct FlagInfo {
  std::string name;  // without dashes in front
  std::string help;
  bool takes_value = false;
  std::vector<std::string> choices = {};
};
std::vector<FlagInfo> Flags();

// Whether a flag of this name exists and whether it takes a value ("--no-auth"
// may stand alone); used by the command line to tell flags from models.
enum class FlagKind { kUnknown, kSwitch, kValue };
FlagKind KindOfFlag(std::string_view name);
// One setting of a model by name ("threads"), from text as a file holds it;
// INVALID_ARGUMENT as for the file, NOT_FOUND for a name that is no such
// setting.
bool IsModelSetting(std::string_view name);
Status SetModelSetting(ModelSettings* model, std::string_view name,
                       std::string_view text);
// "unknown flag --htp-port; did you mean --http-port?", or what to do instead
// of a flag of another server.
Status UnknownFlag(std::string_view name);

}  // namespace millrace::config
