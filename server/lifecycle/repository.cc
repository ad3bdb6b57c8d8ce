// The table of models and its listings; repository_requests.cc has what
// requests get of it, repository_changes.cc the thread that changes it.
// Requests take one short lock; nothing that takes long is done under it.
// Draining at the end of the process leaves the table whole, so that listings
// and metrics stay; the gates alone keep new requests out.
#include "server/lifecycle/repository.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/lifecycle/composite.h"

namespace millrace::server {

Repository::Repository() : Repository(nullptr, nullptr, {}) {}

Repository::Repository(std::unique_ptr<ModelSource> source,
                       std::unique_ptr<ModelLoader> loader,
                       const RepositoryOptions& options)
    : source_(std::move(source)),
      loader_(std::move(loader)),
      allow_control_(options.allow_control && source_ != nullptr),
      allow_adapter_updates_(options.allow_adapter_updates),
      make_choice_(options.make_choice),
      progress_(options.progress),
      operations_({.after = [this] { return Retire(); },
                   .idle = [this] { Poll(); },
                   .idle_interval = options.poll_interval},
                  source_ != nullptr) {}

Repository::~Repository() = default;

// ---- listings ----

Repository::Version& Repository::Entry(const std::string& name,
                                       const std::string& version) {
  auto model = std::find_if(models_.begin(), models_.end(),
                            [&](const Model& m) { return m.name == name; });
  if (model == models_.end()) {
    model = models_.insert(models_.end(), Model{name, {}});
  }
  auto at = model->versions.begin();
  while (at != model->versions.end() && IsLowerVersion(at->version, version))
    ++at;
  if (at == model->versions.end() || at->version != version) {
    at = model->versions.insert(at, Version{version});
  }
  return *at;
}

std::vector<VersionStatus> Repository::Index() const {
  std::vector<VersionStatus> index;
  std::vector<std::shared_ptr<Servable>> serving;  // beside each, or null
  std::vector<std::string> others;
  if (source_ != nullptr) {
    auto names = source_->Names();
    if (names.ok()) others = *std::move(names);
  }
  {
    MutexLock lock(mu_);
    for (const Model& model : models_) {
      std::erase(others, model.name);
      for (const Version& each : model.versions) {
        index.push_back({model.name, each.version, each.state, each.reason});
        const bool serves = each.state == VersionState::kReady;
        serving.push_back(serves ? each.servable : nullptr);
      }
    }
  }
  TellReadiness(serving, &index);
  for (std::string& name : others) {
    index.push_back({std::move(name), {}, VersionState::kUnknown, {}});
  }
  std::stable_sort(index.begin(), index.end(),
                   [](const VersionStatus& a, const VersionStatus& b) {
                     return a.name < b.name;
                   });
  return index;
}

ServerState Repository::state() const {
  MutexLock lock(mu_);
  return state_;
}

void Repository::SetState(ServerState state) {
  MutexLock lock(mu_);
  if (state_ != ServerState::kDraining) state_ = state;
}

bool Repository::Drain(std::chrono::steady_clock::time_point deadline) {
  operations_.Stop();
  std::vector<std::shared_ptr<Servable>> all;
  {
    MutexLock lock(mu_);
    state_ = ServerState::kDraining;
    for (const Model& model : models_) {
      for (const Version& each : model.versions) {
        if (each.servable != nullptr) all.push_back(each.servable);
      }
    }
    for (const Retired& each : retired_) all.push_back(each.servable);
  }
  return DrainInOrder(std::move(all), deadline);
}

// ---- changes ----

void Repository::Add(std::shared_ptr<Servable> servable) {
  MutexLock lock(mu_);
  Version& entry = Entry(servable->id(), servable->version());
  if (entry.servable != nullptr) {
    retired_.push_back({std::move(entry.servable), servable->id()});
  }
  entry.state = VersionState::kReady;
  entry.reason.clear();
  entry.servable = std::move(servable);
}

Status Repository::Load(const std::string& name, const std::string& config) {
  return operations_.Wait([=, this] { return DoLoad(name, config); });
}

Status Repository::Unload(const std::string& name) {
  return operations_.Wait([=, this] { return DoUnload(name); });
}

Status Repository::CheckControl() const {
  if (allow_control_) return OkStatus();
  return Unavailable(
             "models are loaded and unloaded by request only with "
             "--model-control-mode explicit")
      .Because("model_control_disabled");
}

void Repository::RequestLoad(const std::string& name, const std::string& config,
                             Done done) {
  if (Status refused = CheckControl(); !refused.ok()) return done(refused);
  operations_.Post([=, this] { return DoLoad(name, config); }, std::move(done));
}

void Repository::RequestUnload(const std::string& name, Done done) {
  if (Status refused = CheckControl(); !refused.ok()) return done(refused);
  operations_.Post([=, this] { return DoUnload(name); }, std::move(done));
}

}  // namespace millrace::server
