// Any bytes as the configuration of a model: config.pbtxt, the JSON of a load
// request, or config.yaml, as the first byte says. They are refused with a
// sentence, or become settings; what clients are then told of them is read
// again as the same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "config/base/log.h"
#include "config/model_file.h"
#include "config/pipeline_settings.h"
#include "server/lifecycle/model_config.h"

namespace {

using millrace::Status;
using millrace::StatusCode;
using millrace::config::ModelSettings;
using millrace::server::ModelConfig;

void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "model_config_fuzz: %s\n", why);
  std::abort();
}

void CheckRefusal(const Status& status) {
  Require(status.code() == StatusCode::kInvalidArgument,
          "a bad configuration is INVALID_ARGUMENT");
  Require(!status.message().empty(), "a refusal says why");
}

void CheckConfig(const millrace::StatusOr<ModelConfig>& config) {
  if (!config.ok()) return CheckRefusal(config.status());
  ModelSettings settings{.name = "m"};
  if (const Status applied = config->ApplyTo(&settings); !applied.ok()) {
    CheckRefusal(applied);
  }
  if (const auto chosen = config->ChooseVersions({"1", "2", "30"});
      !chosen.ok()) {
    CheckRefusal(chosen.status());
  }
  if (const auto pipeline = config->Pipeline(); !pipeline.ok()) {
    CheckRefusal(pipeline.status());
  }
  const std::string told = config->ToJson();
  const auto again = ModelConfig::FromJson(told);
  Require(again.ok(), "what is told of a configuration can be read");
  Require(again->ToJson() == told, "it is told alike again");
}

void CheckYaml(const std::string& text) {
  const auto file =
      millrace::config::ReadModelFile(text, "config.yaml", ModelSettings{});
  if (!file.ok()) return CheckRefusal(file.status());
  ModelConfig config =
      ModelConfig::FromSettings(file->settings, file->version_policy);
  if (!file->model_warmup.empty()) {
    const auto warmup = config.AddWarmup(file->model_warmup);
    if (!warmup.ok()) CheckRefusal(warmup.status());
  }
  CheckConfig(config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = [] {
    millrace::SetLogLevel(millrace::LogLevel::kOff);
    return true;
  }();
  static_cast<void>(quiet);
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      CheckConfig(ModelConfig::FromText(text, "config.pbtxt"));
      break;
    case 1:
      CheckConfig(ModelConfig::FromJson(text));
      break;
    default:
      CheckYaml(text);
  }
  return 0;
}
