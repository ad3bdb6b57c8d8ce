// What is said later stands: defaults of the server, of the archive's YAML
// file, of the property `models`, of the request.
#include "server/torchserve/registration.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "config/base/utf8.h"
#include "server/lifecycle/model_config.h"
#include "server/torchserve/archive_download.h"
#include "server/torchserve/python_handler.h"
#include "server/torchserve/store_path.h"

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;

std::string Iso8601Now() {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      now.time_since_epoch())
                      .count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40], all[48];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(all, sizeof all, "%s.%03dZ", text, static_cast<int>(ms % 1000));
  return all;
}

Status NoSuchArchive(const std::string& url) {
  return NotFound("Model not found at: " + Shortened(url, 300) +
                  "; name a file or folder of the model store (one that is a "
                  "link out of it is not followed)");
}

// A name that paths can hold.
Status CheckName(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= 200 &&
                    std::none_of(name.begin(), name.end(), [](char c) {
                      return c == '/' || static_cast<unsigned char>(c) < 0x20;
                    });
  if (fits) return OkStatus();
  return InvalidArgument("model_name is '" + Shortened(name, 100) +
                         "' but must have 1 to 200 characters and no slash");
}

Status CheckNumbers(const Registered& model) {
  const struct {
    const char* name;
    int64_t value, least, most;
  } kNumbers[] = {
      {"batch_size", model.batch_size, 1, 1 << 16},
      {"max_batch_delay", model.max_batch_delay_ms, 0, 60'000},
      {"response_timeout", model.response_timeout_s, 0, 1'000'000'000},
      {"startup_timeout", model.startup_timeout_s, 0, 1'000'000'000},
      {"initial_workers", model.min_workers, 0, kMaxWorkers},
      {"max_workers", model.max_workers, model.min_workers, kMaxWorkers},
  };
  for (const auto& each : kNumbers) {
    if (each.value >= each.least && each.value <= each.most) continue;
    return InvalidArgument(std::string(each.name) + " is " +
                           std::to_string(each.value) + " but must be from " +
                           std::to_string(each.least) + " to " +
                           std::to_string(each.most));
  }
  return OkStatus();
}

// A file or folder of the store.
StatusOr<std::string> PathOf(const RegistryOptions& options,
                             const std::string& url) {
  auto path = PathInStore(options.model_store, url);
  if (!path.has_value()) return NoSuchArchive(url);
  return *std::move(path);
}

// What TorchServe makes of numbers that say nothing: its defaults, or the least
// that does.
void Mend(RegisterRequest& request) {
  for (auto* timeout :
       {&request.response_timeout_s, &request.startup_timeout_s}) {
    if (timeout->value_or(0) < 0) timeout->reset();
  }
  const auto at_least = [](std::optional<int64_t>& number, int64_t least) {
    if (number.has_value()) number = std::max(*number, least);
  };
  at_least(request.batch_size, 1);
  at_least(request.max_batch_delay_ms, 0);
  at_least(request.initial_workers, 0);
}

// What is served: its name, version and files.
Status OpenFiles(const RegistryOptions& options, const RegisterRequest& request,
                 Registered& model) {
  if (request.function.has_value()) {
    model.version = "1.0";
    model.model_path = request.function->folder;
    model.files = request.function->files;
    return OkStatus();
  }
  // Of an archive that was unpacked, what was fetched leaves at once.
  std::shared_ptr<const DownloadedArchive> fetched;
  std::string path;
  if (IsArchiveAddress(request.url)) {
    ASSIGN_OR_RETURN(
        fetched,
        DownloadedArchive::Of(request.url, {.allowed = options.allowed_urls,
                                            .sign_for_s3 = request.sign_for_s3,
                                            .stop = request.stop}));
    path = fetched->path();
  } else {
    ASSIGN_OR_RETURN(path, PathOf(options, request.url));
  }
  if (IsServableFile(path)) {
    model.name = fs::path(path).stem().string();
    model.version = "1.0";
    model.model_path = path;
    model.files = std::move(fetched);
    return OkStatus();
  }
  auto archive = Archive::Open(path, request.handler, !options.python.empty());
  if (!archive.ok()) return archive.status().Because("invalid_model");
  model.archive = *std::move(archive);
  const Manifest& manifest = model.archive->manifest();
  model.name = manifest.model_name;
  model.version = manifest.model_version;
  model.model_path = IsBuiltIn(manifest.handler) ? model.archive->model_path()
                                                 : model.archive->folder();
  return OkStatus();
}

// Null: the archive asks for none.
StatusOr<std::shared_ptr<const config::SequenceSettings>> SequencesOf(
    const RegistryOptions& options, const Registered& model) {
  const ArchiveConfig& said = model.archive->config();
  std::shared_ptr<const config::SequenceSettings> none;
  if (said.sequence_batching.empty()) return none;
  if (model.archive->manifest().handler != "base_handler") {
    return FailedPrecondition(
        "sequence_batching is for a graph with the handler base_handler, not "
        "for '" +
        Shortened(model.archive->manifest().handler, 100) + "'");
  }
  const config::ModelSettings settings = SettingsOf(options, model);
  ASSIGN_OR_RETURN(const auto read,
                   ModelConfig::FromSettings(settings, {})
                       .AddSequences(said.sequence_batching, settings));
  config::SequenceSettings sequences = *read;
  if (said.sequence_max_idle_ms.value_or(0) > 0) {
    sequences.max_idle_us = *said.sequence_max_idle_ms * 1000;
  }
  if (said.max_num_sequence.value_or(0) > 0) {
    sequences.max_sequences = *said.max_num_sequence;
  }
  return std::make_shared<const config::SequenceSettings>(std::move(sequences));
}

}  // namespace

config::ModelSettings SettingsOf(const RegistryOptions& options,
                                 const Registered& model) {
  config::ModelSettings settings = options.settings;
  settings.name = model.name;
  settings.path = model.model_path;
  settings.common.max_queue_size = model.job_queue_size;
  // TorchServe's batches of one are a default that says nothing: requests that
  // wait are computed together, and none waits for others.
  if (model.batch_size > 1) {
    settings.graph.max_batch_size = model.batch_size;
    settings.graph.max_queue_delay_us = model.max_batch_delay_ms * 1000;
  }
  settings.graph.instance_count = model.min_workers;
  return settings;
}

Status CheckCanWork(const Registered& model) {
  std::string why;
  if (model.archive != nullptr && !model.archive->handler_status().ok()) {
    why = model.archive->handler_status().message();
  } else if (model.startup_timeout_s == 0) {
    why = "startup_timeout is 0; give seconds";
  } else {
    return OkStatus();
  }
  return Internal("Failed to start workers for model " + model.name +
                  " version: " + model.version + ": " + why);
}

bool IsServableFile(const std::filesystem::path& path) {
  return path.extension() == ".onnx" || path.extension() == ".pt2";
}

StatusOr<Registered> OpenRegistration(const RegistryOptions& options,
                                      MetricLog* metric_log,
                                      const RegisterRequest& asked) {
  RegisterRequest request = asked;
  Mend(request);
  Registered model;
  model.url = ShownAddress(request.url);
  model.at_start = request.at_start;
  model.response_timeout_s = options.default_response_timeout_s;
  model.startup_timeout_s = options.default_startup_timeout_s;
  model.job_queue_size = options.settings.common.max_queue_size;
  if (options.default_workers.has_value()) {
    model.min_workers = model.max_workers = *options.default_workers;
  }
  RETURN_IF_ERROR(OpenFiles(options, request, model));
  const auto apply = [&](const ArchiveConfig& config) {
    if (config.batch_size) model.batch_size = *config.batch_size;
    if (config.max_batch_delay_ms) {
      model.max_batch_delay_ms = *config.max_batch_delay_ms;
    }
    if (config.min_workers) {
      model.min_workers = *config.min_workers;
      model.max_workers = std::max(model.max_workers, model.min_workers);
    }
    if (config.max_workers) model.max_workers = *config.max_workers;
    if (config.response_timeout_s) {
      model.response_timeout_s = *config.response_timeout_s;
    }
    if (config.startup_timeout_s) {
      model.startup_timeout_s = *config.startup_timeout_s;
    }
    if (config.job_queue_size) model.job_queue_size = *config.job_queue_size;
  };
  if (model.archive != nullptr) apply(model.archive->config());
  if (!request.model_name.empty()) model.name = request.model_name;
  for (const ModelDefaults& each : options.models) {
    if (each.name == model.name && each.version == model.version) {
      apply(each.config);
    }
  }
  apply({.batch_size = request.batch_size,
         .max_batch_delay_ms = request.max_batch_delay_ms,
         .response_timeout_s = request.response_timeout_s,
         .startup_timeout_s = request.startup_timeout_s});
  if (request.initial_workers.has_value()) {
    model.min_workers = *request.initial_workers;
    model.max_workers = request.max_workers.value_or(model.min_workers);
  } else if (request.at_start && model.min_workers == 0) {
    model.min_workers = model.max_workers = 1;
  }
  RETURN_IF_ERROR(CheckName(model.name));
  RETURN_IF_ERROR(CheckNumbers(model));
  if (model.min_workers > 0) {
    if (model.archive != nullptr) {
      RETURN_IF_ERROR(model.archive->handler_status().Because("invalid_model"));
    }
    RETURN_IF_ERROR(CheckCanWork(model));
  }
  if (model.archive != nullptr) {
    ASSIGN_OR_RETURN(model.sequences, SequencesOf(options, model));
  }
  const std::string metrics_file =
      metric_log == nullptr ? "" : metric_log->model_file();
  if (request.function.has_value()) {
    const HandlerFunction& function = *request.function;
    model.python = PythonProcess(
        options.python, function.file + ":" + function.name,
        model.startup_timeout_s, model.response_timeout_s, metrics_file);
  } else if (model.archive != nullptr &&
             !IsBuiltIn(model.archive->manifest().handler)) {
    model.python = PythonProcess(
        options.python, model.archive->manifest().handler,
        model.startup_timeout_s, model.response_timeout_s, metrics_file);
  }
  model.start_time = Iso8601Now();
  return model;
}

}  // namespace millrace::server::torchserve
