// The table of models, as requests and listings see it; repository_changes.cc
// has the thread that changes it. Requests take one short lock; nothing that
// takes long is done under it. Draining at the end of the process leaves the
// table whole, so that listings and metrics stay; the gates alone keep new
// requests out.
#include "server/lifecycle/repository.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/lifecycle/composite.h"

namespace millrace::server {
namespace {

using SteadyClock = std::chrono::steady_clock;

Status Draining() {
  return Unavailable(
             "the server is shutting down and takes no new requests; "
             "use another instance")
      .Because("draining")
      .RetryAfterMs(1000);
}

}  // namespace

Repository::Repository() : Repository(nullptr, nullptr, {}) {}

Repository::Repository(std::unique_ptr<ModelSource> source,
                       std::unique_ptr<ModelLoader> loader,
                       const RepositoryOptions& options)
    : source_(std::move(source)),
      loader_(std::move(loader)),
      allow_control_(options.allow_control && source_ != nullptr),
      allow_adapter_updates_(options.allow_adapter_updates),
      progress_(options.progress),
      operations_({.after = [this] { RetireAll(); },
                   .idle = [this] { Poll(); },
                   .idle_interval = options.poll_interval},
                  source_ != nullptr) {}

Repository::~Repository() = default;

// ---- requests and listings ----

std::string Repository::LoadSentence() const {
  return progress_ == nullptr ? std::string() : progress_->Sentence();
}

Status Repository::StillLoading(const std::string& what) const {
  const std::string sentence = LoadSentence();
  return Unavailable(what + (sentence.empty() ? "" : " (" + sentence + ")") +
                     "; try again soon")
      .Because("loading")
      .RetryAfterMs(progress_ == nullptr ? 1000
                                         : progress_->TimeLeft().count());
}

const Repository::Model* Repository::FindModel(std::string_view name) const {
  for (const Model& model : models_) {
    if (model.name == name) return &model;
    for (const Version& version : model.versions) {
      if (version.servable != nullptr && version.servable->IsNamed(name)) {
        return &model;
      }
    }
  }
  return nullptr;
}

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

StatusOr<std::shared_ptr<Servable>> Repository::Choose(
    std::string_view name, std::string_view version) const {
  const auto quoted = "'" + std::string(name) + "'";
  const Model* model = FindModel(name);
  if (model == nullptr && state_ == ServerState::kLoading) {
    return StillLoading("the model " + quoted +
                        " is not served yet, the server is loading its models")
        .At("model");
  }
  if (model == nullptr) {
    std::string known;
    for (const Model& each : models_) {
      const bool serves =
          std::any_of(each.versions.begin(), each.versions.end(),
                      [](const Version& of_model) {
                        return of_model.state == VersionState::kReady;
                      });
      if (serves) known += (known.empty() ? "'" : ", '") + each.name + "'";
    }
    return NotFound("the model " + quoted +
                    " does not exist here; this server has " +
                    (known.empty() ? std::string("none") : known))
        .At("model")
        .Because("model_not_found");
  }
  const Version* found = nullptr;
  const Version* other = nullptr;  // would have been it, but is not ready
  std::string ready;
  for (const Version& each : model->versions) {
    if (each.state == VersionState::kReady) {
      ready += (ready.empty() ? "" : ", ") + each.version;
    }
    if (!version.empty() && version != each.version &&
        std::find(each.labels.begin(), each.labels.end(), version) ==
            each.labels.end()) {
      continue;
    }
    (each.state == VersionState::kReady ? found : other) = &each;
  }
  if (found != nullptr) return found->servable;
  if (other != nullptr && other->state == VersionState::kLoading) {
    return StillLoading("the model " + quoted + " is being loaded").At("model");
  }
  if (other != nullptr && other->state == VersionState::kUnloading) {
    return Unavailable("the model " + quoted +
                       " is being unloaded; try again or use another model")
        .At("model")
        .Because("draining")
        .RetryAfterMs(1000);
  }
  if (ready.empty()) {
    return NotFound("the model " + quoted + " is not loaded" +
                    (other == nullptr ? "" : ": " + other->reason))
        .At("model")
        .Because("model_not_found");
  }
  return NotFound("model " + quoted + " has no version '" +
                  std::string(version) + "' that serves; it has version " +
                  ready)
      .At("model_version")
      .Because("model_not_found");
}

StatusOr<ModelHandle> Repository::Borrow(std::string_view name,
                                         std::string_view version) const {
  MutexLock lock(mu_);
  if (state_ == ServerState::kLoading) {
    return StillLoading((name.empty() ? std::string()
                                      : "the model '" + std::string(name) +
                                            "' is not served yet, ") +
                        "the server is loading its models");
  }
  if (state_ == ServerState::kDraining) return Draining();
  ASSIGN_OR_RETURN(std::shared_ptr<Servable> found, Choose(name, version));
  // Under the lock, so that what is ready here cannot close meanwhile.
  Gate::Pass pass = found->gate().Enter();
  if (!pass) return Draining();
  return ModelHandle(std::move(found), std::move(pass));
}

StatusOr<std::shared_ptr<Servable>> Repository::Find(
    std::string_view name, std::string_view version) const {
  MutexLock lock(mu_);
  return Choose(name, version);
}

std::vector<std::shared_ptr<Servable>> Repository::List() const {
  MutexLock lock(mu_);
  std::vector<std::shared_ptr<Servable>> all;
  for (const Model& model : models_) {
    const auto at = std::find_if(
        model.versions.rbegin(), model.versions.rend(),
        [](const Version& v) { return v.state == VersionState::kReady; });
    if (at != model.versions.rend()) all.push_back(at->servable);
  }
  return all;
}

std::vector<std::string> Repository::VersionsOf(std::string_view name) const {
  MutexLock lock(mu_);
  std::vector<std::string> versions;
  const Model* model = FindModel(name);
  if (model == nullptr) return versions;
  for (const Version& each : model->versions) {
    if (each.state == VersionState::kReady) versions.push_back(each.version);
  }
  return versions;
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

bool Repository::Drain(SteadyClock::time_point deadline) {
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
    retired_.push_back({std::move(entry.servable), servable->id(), false});
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
