#include "server/torchserve/profile.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "config/base/json.h"
#include "config/base/nearest.h"
#include "config/base/read_file.h"
#include "config/base/utf8.h"
#include "server/torchserve/environment.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

// Of files of metrics, in the working folder.
constexpr const char* kMetricsFolder = "logs";
constexpr std::string_view kAddresses[] = {
    "inference_address", "management_address", "metrics_address"};

struct NoEffect {
  std::string_view keys;  // separated by spaces
  std::string_view why;
};
constexpr NoEffect kNoEffect[] = {
    {"vmargs prefer_direct_buffer use_native_io io_ratio", "there is no JVM"},
    {"number_of_netty_threads netty_client_threads",
     "--io-threads and --handler-threads set the threads of connections"},
    {"number_of_gpu", "--device names the GPUs of models"},
    {"initial_worker_port initial_distribution_port",
     "workers are threads of this process and have no ports"},
    {"install_py_dep_per_model blacklist_env_vars decode_input_request "
     "default_service_handler",
     "a handler in Python gets the bytes, the server's environment and "
     "packages"},
    {"service_envelope", "the form of a body is seen from the body"},
    {"async_logging debug cpp_log_config",
     "--log-level and --log-format set the log"},
    {"unregister_model_timeout", "the last requests of a model are waited for"},
    {"max_response_size", "responses are as large as the model's outputs"},
    {"limit_max_image_pixels", "images have limits of their own"},
    {"cors_allowed_methods cors_allowed_headers",
     "cors_allowed_origin alone decides who may call"},
    {"metrics_config metrics_format model_metrics_auto_detect "
     "system_metrics_cmd",
     "all metrics are given, by the names and units that they have at first"},
    {"ipex_enable ipex_gpu_enable cpu_launcher_enable cpu_launcher_args",
     "--threads, --cpu-cores and --numa-node place the computation"},
    {"model_server_home model_snapshot version", "there are no snapshots"},
    {"ts_header_key_sequence_id ts_header_key_sequence_start "
     "ts_header_key_sequence_end",
     "sequences are named by ts_request_sequence_id, _start and _end"},
    {"grpc_management_address grpc_inference_address "
     "grpc_inference_max_connection_age_ms "
     "grpc_management_max_connection_age_ms "
     "grpc_inference_max_connection_age_grace_ms "
     "grpc_management_max_connection_age_grace_ms enable_grpc_ssl",
     "gRPC has the host and the certificate of HTTP"},
    {"ts_open_inference_protocol", "KServe v2 is always spoken"},
    {"keystore_type", "--ssl-cert-file and --ssl-key-file name PEM files"},
    {"use_env_allowed_urls", "allowed_urls is read where it stands"},
};
// Read below; the message of an unknown key looks for the nearest of them.
constexpr std::string_view kKnown[] = {"inference_address",
                                       "management_address",
                                       "metrics_address",
                                       "grpc_inference_port",
                                       "grpc_management_port",
                                       "token_expiration_min",
                                       "model_store",
                                       "workflow_store",
                                       "python",
                                       "load_models",
                                       "models",
                                       "default_workers_per_model",
                                       "default_response_timeout",
                                       "default_startup_timeout",
                                       "job_queue_size",
                                       "max_request_size",
                                       "cors_allowed_origin",
                                       "allowed_urls",
                                       "private_key_file",
                                       "certificate_file",
                                       "keystore",
                                       "keystore_pass",
                                       "enable_metrics_api",
                                       "metrics_mode",
                                       "metric_time_interval",
                                       "disable_system_metrics",
                                       "disable_token_authorization",
                                       "enable_model_api",
                                       "enable_envvars_config"};

bool Holds(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string> ByCommas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view part = Trimmed(text.substr(0, end));
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "ALL" in any case is all of the store.
std::vector<std::string> ModelsOfStart(std::vector<std::string> models) {
  if (models.size() == 1 && Lower(models[0]) == "all") models[0] = "all";
  return models;
}

Status Wrong(std::string_view key, std::string_view value,
             std::string_view wanted) {
  return InvalidArgument(std::string(key) + " is '" + Shortened(value, 200) +
                         "'; expected " + std::string(wanted))
      .At(key);
}

StatusOr<int64_t> Number(std::string_view key, std::string_view value,
                         int64_t least, int64_t most) {
  int64_t number = 0;
  const auto [end, ec] =
      std::from_chars(value.data(), value.data() + value.size(), number);
  if (ec == std::errc() && end == value.data() + value.size() &&
      number >= least && number <= most) {
    return number;
  }
  return Wrong(key, value,
               "a whole number from " + std::to_string(least) + " to " +
                   std::to_string(most));
}

struct Address {
  bool tls = false;
  std::string host;
  int64_t port = 0;
  bool operator==(const Address&) const = default;
};

StatusOr<Address> ReadAddress(std::string_view key, std::string_view value) {
  constexpr std::string_view kWanted =
      "an address such as http://127.0.0.1:8080";
  Address address;
  std::string_view rest = value;
  if (rest.starts_with("https://")) {
    address.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return Wrong(key, value, kWanted);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const bool is_v6 = rest.starts_with('[');
  const size_t host_end = is_v6 ? rest.find(']') : rest.find(':');
  const size_t colon =
      host_end == std::string_view::npos ? host_end : rest.find(':', host_end);
  address.host = rest.substr(is_v6 ? 1 : 0, host_end == std::string_view::npos
                                                ? std::string_view::npos
                                                : host_end - (is_v6 ? 1 : 0));
  if (address.host.empty() || address.host.find('/') != std::string::npos) {
    return Wrong(key, value, kWanted);
  }
  address.port = address.tls ? 443 : 80;
  if (colon != std::string_view::npos) {
    ASSIGN_OR_RETURN(address.port,
                     Number(key, rest.substr(colon + 1), 0, 65535));
  }
  return address;
}

// The property `models`: {"m": {"1.0": {"marName": ..., "minWorkers": 1}}}.
StatusOr<std::vector<ModelDefaults>> ReadModels(const std::string& text) {
  const auto document = ParseJson(text, {.max_depth = 8});
  if (!document.ok() || !document->is_object()) {
    return Wrong("models", text, "a JSON object of models");
  }
  std::vector<ModelDefaults> models;
  for (const auto& [name, versions] : document->items()) {
    if (!versions.is_object()) {
      return Wrong("models", text, "an object of versions for each model");
    }
    for (const auto& [version, fields] : versions.items()) {
      if (!fields.is_object()) {
        return Wrong("models", text, "an object for each version");
      }
      ModelDefaults model{.name = name, .version = version};
      const auto is_default = fields.find("defaultVersion");
      model.default_version = is_default != fields.end() &&
                              is_default->is_boolean() &&
                              is_default->get<bool>();
      // The same words as in a model-config.yaml, and JSON is YAML.
      Json known = fields;
      known.erase("marName");
      known.erase("defaultVersion");
      ASSIGN_OR_RETURN(model.config, ParseArchiveConfig(DumpJson(known)));
      models.push_back(std::move(model));
    }
  }
  return models;
}

class Reader {
 public:
  explicit Reader(const Properties& properties) : properties_(properties) {}

  StatusOr<Profile> Read() {
    for (const auto& [key, value] : properties_) {
      RETURN_IF_ERROR(ReadKey(key, value));
    }
    RETURN_IF_ERROR(ReadAddresses());
    return std::move(profile_);
  }

 private:
  const std::string* Find(std::string_view key) const {
    for (const auto& [name, value] : properties_) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  void Flag(std::string name, std::string value) {
    profile_.flags.emplace_back(std::move(name), std::move(value));
  }

  Status ReadKey(const std::string& key, const std::string& value) {
    RegistryOptions& registry = profile_.registry;
    if (std::find(std::begin(kAddresses), std::end(kAddresses), key) !=
        std::end(kAddresses)) {
      return OkStatus();  // together, below
    }
    if (key == "model_store") {
      registry.model_store = value;
    } else if (key == "python") {
      registry.python = value;
    } else if (key == "workflow_store") {
      registry.workflow_store = value;
    } else if (key == "load_models") {
      if (value != "standalone") {
        registry.load_models = ModelsOfStart(ByCommas(value));
      }
    } else if (key == "models") {
      if (!value.empty()) {
        ASSIGN_OR_RETURN(registry.models, ReadModels(value));
      }
    } else if (key == "default_workers_per_model") {
      ASSIGN_OR_RETURN(registry.default_workers,
                       Number(key, value, 0, kMaxWorkers));
    } else if (key == "default_response_timeout") {
      ASSIGN_OR_RETURN(registry.default_response_timeout_s,
                       Number(key, value, 0, 1'000'000'000));
    } else if (key == "default_startup_timeout") {
      ASSIGN_OR_RETURN(registry.default_startup_timeout_s,
                       Number(key, value, 1, 1'000'000'000));
    } else if (key == "job_queue_size") {
      ASSIGN_OR_RETURN(const int64_t size, Number(key, value, 1, 1'000'000));
      Flag("max_queue_size", std::to_string(size));
    } else if (key == "max_request_size") {
      ASSIGN_OR_RETURN(const int64_t size,
                       Number(key, value, 1024, int64_t{16} << 30));
      Flag("http_max_input_size", std::to_string(size));
    } else if (key == "grpc_inference_port") {
      ASSIGN_OR_RETURN(const int64_t port, Number(key, value, 0, 65535));
      Flag("grpc_port", std::to_string(port));
    } else if (key == "grpc_management_port") {
      ASSIGN_OR_RETURN(registry.grpc_management_port,
                       Number(key, value, 0, 65535));
    } else if (key == "token_expiration_min") {
      ASSIGN_OR_RETURN(const int64_t minutes, Number(key, value, 1, 5'256'000));
      registry.token_lifetime_s = minutes * 60;
    } else if (key == "cors_allowed_origin") {
      Flag("cors_allow_origin", value);
    } else if (key == "private_key_file") {
      key_file_ = value;
    } else if (key == "certificate_file") {
      certificate_file_ = value;
    } else if (key == "allowed_urls") {
      registry.allowed_urls = ByCommas(value);
    } else if (key == "keystore" || key == "keystore_pass") {
      has_keystore_ = true;
    } else if (key == "enable_model_api") {
      registry.model_api_enabled = value == "true";
    } else if (key == "disable_token_authorization") {
      if (value == "true") Flag("no_auth", "true");
    } else if (key == "metrics_mode") {
      const std::string mode = Lower(value);
      if (mode == "log" || mode == "legacy") {
        registry.metric_log.folder = kMetricsFolder;
      } else if (mode != "prometheus") {
        return Wrong(key, value, "log, prometheus or legacy");
      }
    } else if (key == "metric_time_interval") {
      ASSIGN_OR_RETURN(registry.metric_log.interval_s,
                       Number(key, value, 1, 86'400));
    } else if (key == "disable_system_metrics") {
      registry.metric_log.system_metrics = value != "true";
    } else if (key == "enable_metrics_api") {
      if (value == "false") {
        profile_.warnings.push_back(
            "enable_metrics_api has no effect: /metrics is always served");
      }
    } else if (key != "enable_envvars_config") {
      return ReadOther(key);
    }
    return OkStatus();
  }

  Status ReadOther(const std::string& key) {
    for (const NoEffect& each : kNoEffect) {
      if (!Holds(each.keys, key)) continue;
      profile_.warnings.push_back(key +
                                  " has no effect: " + std::string(each.why));
      return OkStatus();
    }
    const std::string_view near =
        Nearest(key, {std::begin(kKnown), std::end(kKnown)});
    profile_.warnings.push_back(
        Shortened(key, 100) +
        " has no effect: TorchServe has no such property" +
        (near.empty() ? std::string()
                      : "; did you mean " + std::string(near) + "?"));
    return OkStatus();
  }

  Status ReadAddresses() {
    Address addresses[3] = {{false, "127.0.0.1", 8080},
                            {false, "127.0.0.1", 8081},
                            {false, "127.0.0.1", 8082}};
    bool tls = false;
    for (size_t i = 0; i < 3; ++i) {
      if (const std::string* value = Find(kAddresses[i])) {
        ASSIGN_OR_RETURN(addresses[i], ReadAddress(kAddresses[i], *value));
      }
      tls |= addresses[i].tls;
    }
    const auto& [inference, management, metrics] = addresses;
    Flag("host", inference.host);
    Flag("http_port", std::to_string(inference.port));
    if (management != inference || management.port == 0) {
      Flag("management_host", management.host);
      Flag("management_port", std::to_string(management.port));
    }
    if (metrics.port == 0 || (metrics != inference && metrics != management)) {
      Flag("metrics_port", std::to_string(metrics.port));
      if (metrics.host != inference.host) {
        profile_.warnings.push_back(
            "the host of metrics_address has no effect: metrics are served at "
            "that of inference_address");
      }
    }
    if (Find("grpc_inference_port") == nullptr) Flag("grpc_port", "7070");
    Flag("metrics_compat", "torchserve");
    if (!tls) return OkStatus();
    for (size_t i = 0; i < 3; ++i) {
      if (addresses[i].tls) continue;
      profile_.warnings.push_back(
          std::string(kAddresses[i]) +
          " has https, too: all ports have TLS where one has");
    }
    if (certificate_file_.empty() || key_file_.empty()) {
      return InvalidArgument(
                 has_keystore_
                     ? "keystore is not read; turn it into two PEM files "
                       "(openssl pkcs12 -in keystore.p12 -nodes) and name them "
                       "as private_key_file and certificate_file"
                     : "https needs private_key_file and certificate_file")
          .At("private_key_file");
    }
    Flag("ssl_cert_file", certificate_file_);
    Flag("ssl_key_file", key_file_);
    return OkStatus();
  }

  const Properties& properties_;
  Profile profile_;
  std::string key_file_, certificate_file_;
  bool has_keystore_ = false;
};

std::optional<std::string> ProcessVariable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// All that TS_ variables may stand for.
std::vector<std::string_view> AllKeys() {
  std::vector<std::string_view> all(std::begin(kKnown), std::end(kKnown));
  for (const NoEffect& each : kNoEffect) {
    std::string_view keys = each.keys;
    while (!keys.empty()) {
      const size_t end = std::min(keys.find(' '), keys.size());
      all.push_back(keys.substr(0, end));
      keys.remove_prefix(std::min(end + 1, keys.size()));
    }
  }
  return all;
}

}  // namespace

StatusOr<Profile> ProfileOf(const Properties& properties) {
  return Reader(properties).Read();
}

StatusOr<Profile> ReadProfile(const ProfileSources& given) {
  ProfileSources sources = given;
  if (!sources.getenv) sources.getenv = ProcessVariable;
  std::string path = sources.ts_config;
  if (const auto value = sources.getenv("TS_CONFIG_FILE")) path = *value;
  std::error_code error;
  if (path.empty() && std::filesystem::exists("config.properties", error)) {
    path = "config.properties";
  }
  Properties properties;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFileOf("ts_config", path, kMaxPropertiesBytes));
    StatusOr<Properties> read = ParseProperties(text);
    if (!read.ok()) return read.status().Prefixed(path);
    properties = *std::move(read);
    const Status named = PutNamedVariables(sources.getenv, properties);
    if (!named.ok()) return named.Prefixed(path);
  }
  if (!sources.model_store.empty()) {
    SetProperty(properties, "model_store", sources.model_store);
  }
  if (!sources.workflow_store.empty()) {
    SetProperty(properties, "workflow_store", sources.workflow_store);
  }
  if (!sources.grpc_management_port.empty()) {
    SetProperty(properties, "grpc_management_port",
                sources.grpc_management_port);
  }
  if (sources.enable_model_api)
    SetProperty(properties, "enable_model_api", "true");
  if (sources.disable_token_auth) {
    SetProperty(properties, "disable_token_authorization", "true");
  }
  const auto enabled = std::find_if(
      properties.begin(), properties.end(),
      [](const auto& each) { return each.first == "enable_envvars_config"; });
  const bool reads_variables =
      enabled != properties.end() && enabled->second == "true";
  if (reads_variables) PutVariables(sources.getenv, AllKeys(), properties);
  ASSIGN_OR_RETURN(Profile profile, ProfileOf(properties));
  if (const auto folder = sources.getenv("METRICS_LOCATION");
      folder.has_value() && !folder->empty() &&
      !profile.registry.metric_log.folder.empty()) {
    profile.registry.metric_log.folder = *folder;
  }
  const bool has_variable =
      reads_variables && sources.getenv("TS_LOAD_MODELS").has_value();
  if (!sources.models.empty() && !has_variable) {
    profile.registry.load_models = ModelsOfStart(sources.models);
  }
  return profile;
}

}  // namespace millrace::server::torchserve
