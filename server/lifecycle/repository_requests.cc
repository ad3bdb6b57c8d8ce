// Which servable a request or a listing gets. One short lock each.
#include <algorithm>
#include <string>
#include <utility>

#include "server/lifecycle/repository.h"

namespace millrace::server {
namespace {

Status Draining() {
  return Unavailable(
             "the server is shutting down and takes no new requests; "
             "use another instance")
      .Because("draining")
      .RetryAfterMs(1000);
}

}  // namespace

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

bool Repository::Version::IsCalled(std::string_view name) const {
  return name.empty() || name == version ||
         std::find(labels.begin(), labels.end(), name) != labels.end();
}

const Repository::Version* Repository::ServingVersion(
    const Model& model, std::string_view version) {
  const auto serves = [version](const Version& each) {
    return each.state == VersionState::kReady && each.IsCalled(version);
  };
  const auto highest =
      std::find_if(model.versions.rbegin(), model.versions.rend(), serves);
  return highest == model.versions.rend() ? nullptr : &*highest;
}

StatusOr<std::shared_ptr<Servable>> Repository::Choose(
    std::string_view name, std::string_view version) const {
  const Model* model = FindModel(name);
  if (model != nullptr) {
    const Version* const serving = ServingVersion(*model, version);
    if (serving != nullptr) return serving->servable;
  }
  const auto quoted = "'" + std::string(name) + "'";
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
  const Version* other = nullptr;  // would have been it, but is not ready
  std::string ready;
  for (const Version& each : model->versions) {
    if (each.state == VersionState::kReady) {
      ready += (ready.empty() ? "" : ", ") + each.version;
    }
    if (each.IsCalled(version)) other = &each;
  }
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
  // Why a model cannot be planned is newer than what its versions say.
  if (ready.empty() && !model->versions.empty() &&
      model->versions.front().version.empty()) {
    other = &model->versions.front();
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

std::string Repository::VersionFor(std::string_view name,
                                   const RequestFields& fields) const {
  const Model* model = FindModel(name);
  if (model == nullptr || model->choice == nullptr) return {};
  std::vector<std::string> ready;
  for (const Version& each : model->versions) {
    if (each.state == VersionState::kReady) ready.push_back(each.version);
  }
  return ready.empty() ? std::string() : model->choice->Choose(fields, ready);
}

StatusOr<ModelHandle> Repository::Borrow(std::string_view name,
                                         std::string_view version,
                                         const RequestFields* fields) const {
  MutexLock lock(mu_);
  if (state_ == ServerState::kLoading) {
    return StillLoading((name.empty() ? std::string()
                                      : "the model '" + std::string(name) +
                                            "' is not served yet, ") +
                        "the server is loading its models");
  }
  if (state_ == ServerState::kDraining) return Draining();
  std::string chosen;
  if (version.empty() && fields != nullptr) {
    chosen = VersionFor(name, *fields);
    version = chosen;
  }
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

}  // namespace millrace::server
