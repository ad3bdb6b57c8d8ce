// `millrace serve --profile torchserve`: TorchServe's command line, its
// config.properties and TS_ variables as settings of ours. Every key is
// honoured, or named with the reason why it has no effect.
//
//   ASSIGN_OR_RETURN(Profile profile, ReadProfile({.model_store = "store"}));
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "server/torchserve/properties.h"
#include "server/torchserve/registry.h"

namespace millrace::server::torchserve {

struct ProfileSources {
  std::string ts_config = {};       // empty: ./config.properties if it is there
  std::string model_store = {};     // empty: the property
  std::string workflow_store = {};  // likewise
  std::string grpc_management_port = {};  // likewise
  std::vector<std::string> models =
      {};  // "m.mar", "name=m.mar"; empty: likewise
  bool enable_model_api = false;
  bool disable_token_auth = false;
  std::function<std::optional<std::string>(const std::string&)> getenv = {};
};

struct Profile {
  // Settings by name, for config::Sources::flags.
  std::vector<std::pair<std::string, std::string>> flags;
  RegistryOptions registry;  // all but the settings of models
  // What has no effect, one sentence each.
  std::vector<std::string> warnings;
};

// Environment (TS_CONFIG_FILE, and TS_… where enable_envvars_config says so)
// wins over the command line, which wins over the file, as TorchServe documents
// it. INVALID_ARGUMENT names the key.
StatusOr<Profile> ReadProfile(const ProfileSources& sources);

// The same of properties that were read. `models` and the like of the command
// line are not looked at.
StatusOr<Profile> ProfileOf(const Properties& properties);

}  // namespace millrace::server::torchserve
