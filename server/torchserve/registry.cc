#include "server/torchserve/registry.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "config/base/log.h"
#include "config/task_settings.h"
#include "server/lifecycle/pipeline_source.h"
#include "server/torchserve/archive_download.h"
#include "server/torchserve/registration.h"

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;

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
  const auto sequences = [](const Registered& model) {
    return model.sequences == nullptr
               ? std::string()
               : model.archive->config().sequence_batching;
  };
  const bool same =
      (one.python == nullptr) == (other.python == nullptr) &&
      (one.python == nullptr || one.python->command == other.python->command) &&
      sequences(one) == sequences(other);
  if (same) return OkStatus();
  return FailedPrecondition(
      "version " + one.version + " of the model " + one.name +
      " has another handler or other sequences, and with a handler in Python "
      "or with sequences all versions have the same; register this one by "
      "another model_name");
}

}  // namespace

StatusOr<Registered> Registry::Register(const RegisterRequest& request) {
  ASSIGN_OR_RETURN(Registered model,
                   OpenRegistration(options_, metric_log_, request));
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

Status Registry::RegisterAll(bool lenient) {
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
    if (!all && !lenient) {
      return registered.Prefixed("'" + ShownAddress(url) + "'");
    }
    LogError("model not registered",
             {{"url", ShownAddress(url)}, {"error", registered.message()}});
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
    return InvalidArgument("min_worker is " + std::to_string(min_workers) +
                           " and max_worker is " + std::to_string(max_workers) +
                           "; expected 0 <= min_worker <= max_worker <= " +
                           std::to_string(kMaxWorkers) +
                           "; all workers are threads of one process");
  }
  if (min_workers > 0) RETURN_IF_ERROR(CheckCanWork(*found));
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

void Registry::Clear() {
  std::map<std::string, Model> models;
  {
    MutexLock lock(mu_);
    models.swap(models_);
  }
  // A load has an archive of its own, until it has ended.
  for (const auto& [name, model] : models) {
    for (const Registered& version : model.versions) {
      if (version.archive != nullptr) version.archive->RemoveFiles();
    }
  }
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
    return {.sequences = versions->back().sequences,
            .external = versions->back().python};
  }

 private:
  VersionPlan PlanOf(const Registered& model) const {
    VersionPlan plan;
    plan.version = model.version;
    plan.settings = SettingsOf(registry_->options_, model);
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
