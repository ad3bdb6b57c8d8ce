// What the repository's own thread does: it loads and takes out versions, looks
// for news in the files, and frees what has left once its requests have ended.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "config/base/log.h"
#include "server/lifecycle/repository.h"
#include "server/lifecycle/traffic_split.h"

namespace millrace::server {
namespace {

using SteadyClock = std::chrono::steady_clock;

// An operation gives the requests of what it took out so long to end, so that
// their memory and cores are free for the next one; longer ones hold up none.
constexpr auto kRequestsLeave = std::chrono::milliseconds(500);
constexpr auto kLookAgain = std::chrono::milliseconds(5);
// Those that only read a listing let go of a model within that time.
constexpr auto kReadersLeave = std::chrono::seconds(2);

constexpr const char* kOneBeforeServes =
    "the load before this one serves; the last failed: ";

std::string TextOf(const config::TrafficSettings* traffic) {
  return traffic == nullptr ? std::string() : config::TrafficText(*traffic);
}

// Takes out the entry of a model that could not be planned.
void ForgetFailure(auto& versions) {
  std::erase_if(versions,
                [](const auto& each) { return each.version.empty(); });
}

}  // namespace

// A model that the source lists and cannot plan, such as one whose
// configuration is wrong, has an entry without a version that says why, unless
// a version of it serves.
Status Repository::DoLoad(const std::string& name, const std::string& config) {
  const auto found = source_->Find(name, config);
  if (!found.ok()) {
    // Clients may ask for any name.
    const auto names = source_->Names();
    if (!names.ok()) return found.status();
    if (std::find(names->begin(), names->end(), name) == names->end()) {
      MutexLock lock(mu_);
      for (Model& model : models_) {
        if (model.name == name) ForgetFailure(model.versions);
      }
      return found.status();
    }
    const std::string why(found.status().message());
    bool is_news = false;
    {
      MutexLock lock(mu_);
      const auto tell = [&](Version& entry, const std::string& reason) {
        is_news = is_news || entry.reason != reason;
        entry.reason = reason;
      };
      bool serves = false;
      for (Model& model : models_) {
        if (model.name != name) continue;
        for (Version& each : model.versions) {
          if (each.state != VersionState::kReady) continue;
          serves = true;
          tell(each, kOneBeforeServes + why);
        }
      }
      if (!serves) {
        Version& entry = Entry(name, {});
        entry.state = VersionState::kUnavailable;
        tell(entry, why);
      }
    }
    if (is_news)
      LogError("model not loaded", {{"model", name}, {"error", why}});
    return found.status();
  }
  const std::vector<VersionPlan>& plans = *found;
  {
    MutexLock lock(mu_);
    for (Model& model : models_) {
      if (model.name != name) continue;
      ForgetFailure(model.versions);
    }
  }
  Status first_error;
  std::vector<std::string> wanted;
  for (const VersionPlan& plan : plans) {
    wanted.push_back(plan.version);
    Status status = DoLoadVersion(name, plan);
    if (first_error.ok()) first_error = std::move(status);
  }
  // What served before goes on until all that shall replace it serves.
  if (first_error.ok() || !source_->VersionsReplaceEachOther()) {
    TakeOut(name, wanted);
  }
  if (first_error.ok() && !plans.empty()) {
    SetChoice(name, plans.back().traffic.get());
  }
  return first_error.ok() && !plans.empty() ? LoadAdaptersOf(name, plans.back())
                                            : first_error;
}

bool Repository::Adapt(const std::string& name, const VersionPlan& plan) {
  std::shared_ptr<Servable> serving;
  {
    MutexLock lock(mu_);
    Version& entry = Entry(name, plan.version);
    if (entry.state != VersionState::kReady || plan.stamp.empty() ||
        entry.stamp != plan.stamp) {
      return false;
    }
    serving = entry.servable;
  }
  const int64_t wanted = plan.settings.graph.instance_count;
  if (wanted > 0 && !serving->HasInstances(wanted) &&
      !serving->SetInstanceCount(wanted).ok()) {
    return false;
  }
  MutexLock lock(mu_);
  Version& entry = Entry(name, plan.version);
  entry.labels = plan.labels;
  entry.reason.clear();
  entry.failed_stamp.clear();
  return true;
}

Status Repository::DoLoadVersion(const std::string& name,
                                 const VersionPlan& plan) {
  if (Adapt(name, plan)) return OkStatus();
  {
    MutexLock lock(mu_);
    Version& entry = Entry(name, plan.version);
    if (entry.state != VersionState::kReady) {
      entry.state = VersionState::kLoading;
      entry.reason.clear();
    }
  }
  StatusOr<std::shared_ptr<Servable>> loaded = [&]() {
    try {
      return loader_->Load(plan);
    } catch (const std::exception& error) {  // out of memory, most likely
      return StatusOr<std::shared_ptr<Servable>>(
          ResourceExhausted(std::string("cannot load: ") + error.what()));
    }
  }();
  MutexLock lock(mu_);
  Version& entry = Entry(name, plan.version);
  if (!loaded.ok()) {
    entry.failed_stamp = plan.stamp;
    const std::string why(loaded.status().message());
    const bool serves = entry.state == VersionState::kReady;
    entry.reason = serves ? kOneBeforeServes + why : why;
    if (!serves) entry.state = VersionState::kUnavailable;
    LogError("model not loaded", {{"model", name},
                                  {"version", plan.version},
                                  {"error", why},
                                  {"one_before_serves", serves}});
    return loaded.status();
  }
  if (entry.servable != nullptr) {
    TakeOutAdaptersOf(name);
    retired_.push_back({std::move(entry.servable), name});
  }
  entry.state = VersionState::kReady;
  entry.reason.clear();
  entry.stamp = plan.stamp;
  entry.failed_stamp.clear();
  entry.labels = plan.labels;
  entry.servable = *std::move(loaded);
  return OkStatus();
}

Status Repository::DoUnload(const std::string& name) {
  std::string id = name;
  {
    MutexLock lock(mu_);
    const bool is_own =
        std::any_of(models_.begin(), models_.end(),
                    [&](const Model& model) { return model.name == name; });
    const Model* const called = FindModel(name);
    if (!is_own && called != nullptr && name != kAnyName) id = called->name;
  }
  TakeOut(id, {});
  return OkStatus();
}

void Repository::TakeOut(const std::string& name,
                         const std::vector<std::string>& kept_versions) {
  MutexLock lock(mu_);
  for (Model& model : models_) {
    if (model.name != name) continue;
    for (Version& each : model.versions) {
      if (each.state != VersionState::kReady ||
          std::find(kept_versions.begin(), kept_versions.end(), each.version) !=
              kept_versions.end()) {
        continue;
      }
      TakeOutAdaptersOf(name);
      each.state = VersionState::kUnloading;
      retired_.push_back({std::move(each.servable), name});
    }
  }
}

// A version that failed is no news until its files change.
bool Repository::IsNews(const std::string& name,
                        const std::vector<VersionPlan>& plans) {
  {
    MutexLock lock(mu_);
    const Model* model = FindModel(name);
    // It could not be planned before.
    if (model != nullptr && !model->versions.empty() &&
        model->versions.front().version.empty()) {
      return true;
    }
  }
  size_t num_ready = 0;
  for (const VersionPlan& plan : plans) {
    MutexLock lock(mu_);
    const Version& entry = Entry(name, plan.version);
    const bool is_failure =
        !plan.stamp.empty() && entry.failed_stamp == plan.stamp;
    if (entry.stamp != plan.stamp && !is_failure) return true;
    const bool serves = entry.state == VersionState::kReady;
    if (serves && entry.labels != plan.labels) return true;
    // What failed since it was loaded is as it was again.
    if (serves && !is_failure && !entry.reason.empty()) return true;
    const int64_t instances = plan.settings.graph.instance_count;
    if (serves && !is_failure && instances > 0 &&
        !entry.servable->HasInstances(instances)) {
      return true;
    }
    if (!is_failure && entry.state == VersionState::kReady) ++num_ready;
  }
  if (num_ready < plans.size()) return false;
  if (VersionsOf(name).size() > num_ready) return true;
  MutexLock lock(mu_);
  const Model* model = FindModel(name);
  return model != nullptr && !plans.empty() &&
         model->choice_text != TextOf(plans.back().traffic.get());
}

void Repository::SetChoice(const std::string& name,
                           const config::TrafficSettings* traffic) {
  const std::string text = TextOf(traffic);
  std::vector<std::shared_ptr<Servable>> serving;
  {
    MutexLock lock(mu_);
    for (Model& model : models_) {
      if (model.name != name) continue;
      for (const Version& each : model.versions) {
        if (each.servable != nullptr) serving.push_back(each.servable);
      }
      if (model.choice_text == text) continue;
      model.choice_text = text;
      model.choice = traffic == nullptr || make_choice_ == nullptr
                         ? nullptr
                         : make_choice_(name, *traffic);
    }
  }
  for (const auto& each : serving) ShowTraffic(text, each.get());
}

void Repository::Poll() {
  const auto listed = source_->Names();
  if (!listed.ok()) {  // what serves goes on
    LogError("repository not listed", {{"error", listed.status().message()}});
    return;
  }
  const std::vector<std::string>& names = *listed;
  for (const std::string& name : names) {
    const auto plans = source_->Find(name, {});
    // The reason of a failure is logged once and stands in the index.
    if (!plans.ok() || IsNews(name, *plans)) {
      static_cast<void>(DoLoad(name, {}));
    }
  }
  {
    MutexLock lock(mu_);
    for (Model& model : models_) {
      if (std::find(names.begin(), names.end(), model.name) != names.end()) {
        continue;
      }
      ForgetFailure(model.versions);
    }
  }
  for (const std::shared_ptr<Servable>& each : List()) {
    if (!each->facts().parent.empty()) continue;  // an adapter
    if (std::find(names.begin(), names.end(), each->id()) == names.end()) {
      TakeOut(each->id(), {});
    }
  }
}

bool Repository::Retire() {
  while (true) {
    Retired leaving = TakeRetired();
    if (leaving.servable == nullptr) break;
    Free(std::move(leaving));
  }
  MutexLock lock(mu_);
  return !retired_.empty();
}

Repository::Retired Repository::TakeRetired() {
  while (true) {
    std::vector<Retired> left;
    {
      MutexLock lock(mu_);
      for (Retired& each : retired_) {
        if (each.patience == SteadyClock::time_point()) {
          each.patience = SteadyClock::now() + kRequestsLeave;
        }
      }
      left = retired_;
    }
    bool is_patient = false;
    for (const Retired& each : left) {
      Gate& gate = each.servable->gate();
      gate.Close();
      // Requests of an adapter run in its base.
      const bool has_adapter =
          std::any_of(left.begin(), left.end(), [&](const Retired& other) {
            return other.servable->facts().parent == each.name;
          });
      if (!has_adapter && gate.in_flight() == 0) {
        MutexLock lock(mu_);
        std::erase_if(retired_, [&](const Retired& other) {
          return other.servable == each.servable;
        });
        return each;
      }
      is_patient = is_patient || SteadyClock::now() < each.patience;
    }
    if (!is_patient || operations_.stopping()) return {};
    std::this_thread::sleep_for(kLookAgain);
  }
}

// On no thread of its own or of a request.
void Repository::Free(Retired leaving) {
  leaving.servable->Drain(SteadyClock::now());
  const auto last = SteadyClock::now() + kReadersLeave;
  while (leaving.servable.use_count() > 1 && SteadyClock::now() < last) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::string version = leaving.servable->version();
  leaving.servable.reset();
  malloc_trim(0);
  MutexLock lock(mu_);
  const bool is_last =
      std::none_of(retired_.begin(), retired_.end(), [&](const Retired& other) {
        return other.name == leaving.name &&
               other.servable->version() == version;
      });
  Version& entry = Entry(leaving.name, version);
  if (is_last && entry.state == VersionState::kUnloading) {
    entry.state = VersionState::kUnavailable;
    entry.reason = "unloaded";
    entry.stamp.clear();
  }
  LogInfo("model unloaded", {{"model", leaving.name}, {"version", version}});
}

}  // namespace millrace::server
