#include "server/torchserve/registry.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <regex>
#include <system_error>
#include <utility>

#include "config/base/log.h"
#include "config/task_settings.h"
#include "server/lifecycle/pipeline_source.h"
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
  return NotFound("Model not found at: " + url.substr(0, 300) +
                  "; name a file or folder of the model store");
}

bool IsServableFile(const fs::path& path) {
  return path.extension() == ".onnx" || path.extension() == ".pt2";
}

// What TorchServe's handler of that name does before and after the model; null:
// tensors alone. The numbers of image_classifier are those of ImageNet.
std::shared_ptr<const config::TaskSettings> TaskOf(const Archive& archive) {
  const std::string& handler = archive.manifest().handler;
  config::TaskSettings task;
  if (handler == "image_classifier") {
    task.kind = config::TaskKind::kClassify;
    task.image.resize = {"256"};
    task.image.center_crop = {"224"};
    task.image.mean = {"0.485", "0.456", "0.406"};
    task.image.std = {"0.229", "0.224", "0.225"};
  } else if (handler == "object_detector") {
    task.kind = config::TaskKind::kDetect;
  } else if (handler == "image_segmenter") {
    task.kind = config::TaskKind::kSegment;
  } else if (handler == "text_classifier") {
    task.kind = config::TaskKind::kClassifyText;
  } else {
    return nullptr;
  }
  std::error_code error;
  if (fs::exists(archive.folder() + "/index_to_name.json", error)) {
    task.labels = "index_to_name.json";
  }
  return std::make_shared<const config::TaskSettings>(std::move(task));
}

// How a model is run is known by its name alone.
Status CheckSameHandler(const Registered& one, const Registered& other) {
  const bool same =
      (one.python == nullptr) == (other.python == nullptr) &&
      (one.python == nullptr || one.python->command == other.python->command);
  if (same) return OkStatus();
  return FailedPrecondition(
      "version " + one.version + " of the model " + one.name +
      " has another handler, and of a handler in Python all versions have the "
      "same; register this one by another model_name");
}

// A name that paths can hold.
Status CheckName(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= 200 &&
                    std::none_of(name.begin(), name.end(), [](char c) {
                      return c == '/' || static_cast<unsigned char>(c) < 0x20;
                    });
  if (fits) return OkStatus();
  return InvalidArgument("model_name is '" + name.substr(0, 100) +
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

}  // namespace

StatusOr<std::string> Registry::PathOf(const std::string& url) const {
  if (!options_.allowed_urls.empty()) {
    const bool allowed =
        std::any_of(options_.allowed_urls.begin(), options_.allowed_urls.end(),
                    [&](const std::string& pattern) {
                      try {
                        return url.size() <= 2000 &&
                               std::regex_match(url, std::regex(pattern));
                      } catch (const std::regex_error&) {
                        return false;
                      }
                    });
    if (!allowed && url.find("://") != std::string::npos) {
      return InvalidArgument("Given URL " + url.substr(0, 300) +
                             " does not match any allowed URL(s)");
    }
  }
  if (url.find("://") != std::string::npos) {
    return InvalidArgument(
        "Given URL " + url.substr(0, 300) +
        " is not in the model store, and archives are not downloaded; put it "
        "there and name its file");
  }
  auto path = PathInStore(options_.model_store, url);
  if (!path.has_value()) return NoSuchArchive(url);
  return *std::move(path);
}

// What is served: its name, version and files.
Status Registry::OpenFiles(const RegisterRequest& request,
                           Registered& model) const {
  if (request.function.has_value()) {
    model.version = "1.0";
    model.model_path = request.function->folder;
    model.files = request.function->files;
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string path, PathOf(request.url));
  if (IsServableFile(path)) {
    model.name = fs::path(path).stem().string();
    model.version = "1.0";
    model.model_path = path;
    return OkStatus();
  }
  auto archive = Archive::Open(path, request.handler, !options_.python.empty());
  if (!archive.ok()) return archive.status().Because("invalid_model");
  model.archive = *std::move(archive);
  const Manifest& manifest = model.archive->manifest();
  model.name = manifest.model_name;
  model.version = manifest.model_version;
  model.model_path = IsBuiltIn(manifest.handler) ? model.archive->model_path()
                                                 : model.archive->folder();
  return OkStatus();
}

StatusOr<Registered> Registry::Open(const RegisterRequest& request) const {
  Registered model;
  model.url = request.url;
  model.at_start = request.at_start;
  model.response_timeout_s = options_.default_response_timeout_s;
  model.startup_timeout_s = options_.default_startup_timeout_s;
  model.job_queue_size = options_.settings.common.max_queue_size;
  if (options_.default_workers.has_value()) {
    model.min_workers = model.max_workers = *options_.default_workers;
  }
  RETURN_IF_ERROR(OpenFiles(request, model));
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
  for (const ModelDefaults& each : options_.models) {
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
  if (request.function.has_value()) {
    const HandlerFunction& function = *request.function;
    model.python =
        PythonProcess(options_.python, function.file + ":" + function.name,
                      model.startup_timeout_s, model.response_timeout_s);
  } else if (model.archive != nullptr &&
             !IsBuiltIn(model.archive->manifest().handler)) {
    model.python =
        PythonProcess(options_.python, model.archive->manifest().handler,
                      model.startup_timeout_s, model.response_timeout_s);
  }
  model.start_time = Iso8601Now();
  return model;
}

StatusOr<Registered> Registry::Register(const RegisterRequest& request) {
  ASSIGN_OR_RETURN(Registered model, Open(request));
  if (request.may_use) RETURN_IF_ERROR(request.may_use(model.name));
  MutexLock lock(mu_);
  int64_t num_versions = 0;
  for (const auto& [name, each] : models_) {
    num_versions += static_cast<int64_t>(each.versions.size());
  }
  if (num_versions >= kMaxRegistered) {
    return ResourceExhausted(std::to_string(kMaxRegistered) +
                             " versions of models are registered, which is the "
                             "limit; unregister some");
  }
  const auto at = models_.find(model.name);
  if (at != models_.end()) {
    for (const Registered& each : at->second.versions) {
      RETURN_IF_ERROR(CheckSameHandler(each, model));
      if (each.version != model.version) continue;
      return AlreadyExists("Model version " + model.version +
                           " is already registered for model " + model.name);
    }
  }
  Model& entry = models_[model.name];
  if (entry.versions.empty()) entry.default_version = model.version;
  for (const ModelDefaults& each : options_.models) {
    if (each.name == model.name && each.version == model.version &&
        each.default_version) {
      entry.default_version = model.version;
    }
  }
  model.number = ++num_registrations_;
  entry.versions.push_back(model);
  return model;
}

Status Registry::RegisterAll() {
  std::vector<std::string> wanted = options_.load_models;
  const bool all = wanted == std::vector<std::string>{"all"};
  if (all) {
    wanted.clear();
    std::error_code error;
    for (fs::directory_iterator at(options_.model_store, error), end;
         !error && at != end; at.increment(error)) {
      const fs::path& path = at->path();
      std::error_code unreadable;  // lost+found, say: it is no model
      if (path.extension() == ".mar" || IsServableFile(path) ||
          fs::exists(path / "MAR-INF" / "MANIFEST.json", unreadable)) {
        wanted.push_back(path.filename().string());
      }
    }
    if (error) {
      return NotFound("the model store '" + options_.model_store +
                      "' cannot be read (" + error.message() +
                      "); --model-store names another");
    }
    std::sort(wanted.begin(), wanted.end());
  }
  for (const std::string& each : wanted) {
    const size_t equals = all ? std::string::npos : each.find('=');
    const std::string url =
        equals == std::string::npos ? each : each.substr(equals + 1);
    const Status registered =
        Register({.url = url,
                  .model_name = equals == std::string::npos
                                    ? std::string()
                                    : each.substr(0, equals),
                  .at_start = true})
            .status();
    if (registered.ok()) continue;
    if (!all) return registered.Prefixed("'" + url + "'");
    LogError("model not registered",
             {{"url", url}, {"error", registered.message()}});
  }
  return OkStatus();
}

StatusOr<const Registry::Model*> Registry::FindModel(
    const std::string& name) const {
  const auto at = models_.find(name);
  if (at == models_.end()) return NotFound("Model not found: " + name);
  return &at->second;
}

StatusOr<const Registered*> Registry::Choose(const std::string& name,
                                             const std::string& version) const {
  ASSIGN_OR_RETURN(const Model* model, FindModel(name));
  const std::string& wanted =
      version.empty() ? model->default_version : version;
  for (const Registered& each : model->versions) {
    if (each.version == wanted) return &each;
  }
  return NotFound("Model version: " + wanted +
                  " does not exist for model: " + name)
      .At("model_version");
}

StatusOr<Registered> Registry::Find(const std::string& name,
                                    const std::string& version) const {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(const Registered* found, Choose(name, version));
  return *found;
}

StatusOr<std::vector<Registered>> Registry::FindAll(
    const std::string& name) const {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(const Model* model, FindModel(name));
  return model->versions;
}

std::vector<Registered> Registry::List() const {
  MutexLock lock(mu_);
  std::vector<Registered> list;
  for (const auto& [name, model] : models_) {
    for (const Registered& each : model.versions) {
      if (each.version == model.default_version) list.push_back(each);
    }
  }
  return list;
}

Status Registry::Scale(const std::string& name, const std::string& version,
                       int64_t min_workers, int64_t max_workers) {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(const Registered* found, Choose(name, version));
  if (min_workers < 0 || max_workers < min_workers ||
      max_workers > kMaxWorkers) {
    return InvalidArgument(
        "min_worker is " + std::to_string(min_workers) + " and max_worker is " +
        std::to_string(max_workers) +
        " but 0 <= min_worker <= max_worker <= " + std::to_string(kMaxWorkers) +
        " is wanted; all workers are threads of one process");
  }
  for (Registered& each : models_[name].versions) {
    if (each.number != found->number) continue;
    each.min_workers = min_workers;
    each.max_workers = max_workers;
  }
  return OkStatus();
}

Status Registry::SetDefault(const std::string& name,
                            const std::string& version) {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(const Registered* found, Choose(name, version));
  models_[name].default_version = found->version;
  return OkStatus();
}

StatusOr<Registered> Registry::Remove(const std::string& name,
                                      const std::string& version) {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(const Registered* found, Choose(name, version));
  Registered removed = *found;
  Model& model = models_[name];
  if (removed.version == model.default_version && model.versions.size() > 1) {
    return FailedPrecondition(
               "Can't remove default version: " + removed.version +
               " of model: " + name + "; make another one the default first")
        .Because("default_version");
  }
  std::erase_if(model.versions, [&](const Registered& each) {
    return each.number == removed.number;
  });
  if (model.versions.empty()) models_.erase(name);
  return removed;
}

bool Registry::Discard(const Registered& registered) {
  MutexLock lock(mu_);
  const auto at = models_.find(registered.name);
  if (at == models_.end()) return false;
  Model& model = at->second;
  const size_t erased = std::erase_if(
      model.versions,
      [&](const Registered& each) { return each.number == registered.number; });
  if (erased == 0) return false;
  if (model.versions.empty()) {
    models_.erase(at);
  } else if (model.default_version == registered.version) {
    model.default_version = model.versions.front().version;
  }
  return true;
}

bool Registry::IsWanted(const std::string& name) const {
  MutexLock lock(mu_);
  const auto at = models_.find(name);
  return at != models_.end() &&
         std::any_of(
             at->second.versions.begin(), at->second.versions.end(),
             [](const Registered& each) { return each.min_workers > 0; });
}

class Registry::RegistrySource final : public ModelSource,
                                       public PipelineSource {
 public:
  explicit RegistrySource(const Registry* registry) : registry_(registry) {}

  // Each was registered for itself.
  bool VersionsReplaceEachOther() const override { return false; }

  StatusOr<std::vector<std::string>> Names() override {
    MutexLock lock(registry_->mu_);
    std::vector<std::string> names;
    for (const auto& [name, model] : registry_->models_) names.push_back(name);
    return names;
  }

  StatusOr<std::vector<VersionPlan>> Find(const std::string& name,
                                          const std::string&) override {
    ASSIGN_OR_RETURN(const std::vector<Registered> versions,
                     registry_->FindAll(name));
    std::vector<VersionPlan> plans;
    for (const Registered& each : versions) {
      if (each.min_workers > 0) plans.push_back(PlanOf(each));
    }
    if (plans.empty()) {
      return NotFound("the model '" + name + "' has no workers");
    }
    return plans;
  }

  config::PipelineSettings PipelineOf(const std::string& name) const override {
    const auto versions = registry_->FindAll(name);
    if (!versions.ok()) return {};
    return {.external = versions->back().python};
  }

 private:
  VersionPlan PlanOf(const Registered& model) const {
    VersionPlan plan;
    plan.version = model.version;
    plan.settings = registry_->options_.settings;
    plan.settings.name = model.name;
    plan.settings.path = model.model_path;
    plan.settings.common.max_queue_size = model.job_queue_size;
    // TorchServe's batches of one are a default that says nothing: requests
    // that wait are computed together, and none waits for others.
    if (model.batch_size > 1) {
      plan.settings.graph.max_batch_size = model.batch_size;
      plan.settings.graph.max_queue_delay_us = model.max_batch_delay_ms * 1000;
    }
    plan.settings.graph.instance_count = model.min_workers;
    if (model.archive != nullptr && model.python == nullptr) {
      plan.settings.task = TaskOf(*model.archive);
    }
    plan.stamp = "registration " + std::to_string(model.number);
    return plan;
  }

  const Registry* const registry_;
};

std::unique_ptr<ModelSource> Registry::Source() {
  return std::make_unique<RegistrySource>(this);
}

}  // namespace millrace::server::torchserve
