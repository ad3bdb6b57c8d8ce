// The models being served: name → versions → state. Loads and unloads them
// while others serve, lends handles.
//
//   ASSIGN_OR_RETURN(ModelHandle model, repository.Borrow("smollm2"));
//   ASSIGN_OR_RETURN(auto* handler, model->ForText());   // keep the handle
//   RETURN_IF_ERROR(repository.Load("smollm2"));         // until the request's
//                                                        // end
// A load goes through load → warm → swap → drain → unload: requests go to the
// new version from the swap on, and the one before leaves when the last of its
// requests has ended, however many loads come in between. A version that fails
// to load changes nothing for requests and its reason stands in Index. Loads
// and unloads run on a thread of their own, one at a time, in order.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/gate.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "server/lifecycle/load_progress.h"
#include "server/lifecycle/model_source.h"
#include "server/lifecycle/operation_queue.h"
#include "server/lifecycle/servable.h"
#include "server/lifecycle/version_choice.h"
#include "server/lifecycle/version_state.h"

namespace millrace::server {

// Shared because requests end on their own time after a model left the table.
class ModelHandle {
 public:
  ModelHandle(std::shared_ptr<Servable> servable, Gate::Pass pass)
      : servable_(std::move(servable)), pass_(std::move(pass)) {}
  Servable* operator->() const { return servable_.get(); }
  Servable& operator*() const { return *servable_; }

 private:
  std::shared_ptr<Servable> servable_;
  Gate::Pass pass_;  // leaves before the servable can go
};

enum class ServerState { kLoading, kReady, kDraining };

struct RepositoryOptions {
  // Load, unload by request (model control mode "explicit").
  bool allow_control = false;
  bool allow_adapter_updates = false;  // by request
  // Looks at the source again and again; zero: never (mode "poll").
  std::chrono::milliseconds poll_interval{0};
  // How the versions of a model share requests. Null: the highest serves.
  std::function<std::shared_ptr<VersionChoice>(const std::string& model,
                                               const config::TrafficSettings&)>
      make_choice = nullptr;
  // What refusals tell of loads; outlives the repository. Null: nothing.
  const LoadProgress* progress = nullptr;
};

class Repository {
 public:
  using Done = OperationQueue::Done;

  // One without source serves what Add brings.
  Repository();
  Repository(std::unique_ptr<ModelSource> source,
             std::unique_ptr<ModelLoader> loader,
             const RepositoryOptions& options);
  // Operations that wait end with UNAVAILABLE; the one that runs is waited for.
  ~Repository();

  // ---- requests ----

  // By id or alias, and by version or a label of it; without one the version
  // that the model's traffic gives a request of these fields, or, without
  // fields or traffic, the highest that is ready.
  // NOT_FOUND with reason "model_not_found", UNAVAILABLE while loading or
  // draining.
  StatusOr<ModelHandle> Borrow(std::string_view name,
                               std::string_view version = {},
                               const RequestFields* fields = nullptr) const;

  // ---- listings; what they return may be held for the length of a request --

  // Borrow's choice without counting as a request: works while the server loads
  // or drains. NOT_FOUND; UNAVAILABLE for what may still be loaded.
  StatusOr<std::shared_ptr<Servable>> Find(std::string_view name,
                                           std::string_view version = {}) const;
  // One of each model that serves: its highest version.
  std::vector<std::shared_ptr<Servable>> List() const;
  // Versions that serve, ascending.
  std::vector<std::string> VersionsOf(std::string_view name) const;
  // Every version ever loaded and every model of the source, by name.
  std::vector<VersionStatus> Index() const;

  // ---- changes ----

  // Serves it from now on; one of the same name and version gives way.
  void Add(std::shared_ptr<Servable> servable);

  // Loads the versions that the source names now. OK when all of them serve;
  // the first error otherwise. Waits for the swap, not for requests of what
  // gave way.
  Status Load(const std::string& name, const std::string& config = {});
  // The same of a model that another one needs: within the load of that one
  // alone, on its thread.
  Status LoadWithin(const std::string& name) { return DoLoad(name, {}); }
  // Takes all versions out of service, by the model's name or an alias; they
  // are gone when their requests are. OK where none is loaded, also of a name
  // that nothing has: Triton answers so.
  Status Unload(const std::string& name);
  // The same without waiting, for clients: `done` is called once, from the
  // repository's thread or before this returns. UNAVAILABLE unless control is
  // allowed, RESOURCE_EXHAUSTED when too many operations wait.
  void RequestLoad(const std::string& name, const std::string& config,
                   Done done);
  void RequestUnload(const std::string& name, Done done);
  // LoRA adapters: as models of their own name, beside their base. They leave
  // with it. A load is INVALID_ARGUMENT when the name is taken; both are
  // UNAVAILABLE unless adapters may change while the server runs.
  void RequestLoadAdapter(const AdapterPlan& plan, Done done);
  void RequestUnloadAdapter(const std::string& name, Done done);

  ServerState state() const;
  // A server that drains stays so.
  void SetState(ServerState state);
  // "0 of 2 models are ready, 'm' is at 43 %"; empty: nothing is known.
  std::string LoadSentence() const;
  const LoadProgress* progress() const { return progress_; }  // may be null

  // Draining: refuses new handles, lets running requests end until the
  // deadline. True if all of them ended by themselves.
  bool Drain(std::chrono::steady_clock::time_point deadline);

 private:
  struct Version {
    std::string version;
    VersionState state = VersionState::kUnknown;
    std::string reason = {};
    std::string stamp = {};                   // of what serves
    std::string failed_stamp = {};            // of the last load, if it failed
    std::vector<std::string> labels = {};     // of the last plan
    std::shared_ptr<Servable> servable = {};  // while kReady or kUnloading

    // By its number or a label; an empty name fits any.
    bool IsCalled(std::string_view name) const;
  };
  struct Model {
    std::string name;
    std::vector<Version> versions;  // ascending
    // Null: the highest version serves. Shared with requests that ask it.
    std::shared_ptr<VersionChoice> choice = {};
    std::string choice_text = {};
  };
  const Model* FindModel(std::string_view name) const REQUIRES(mu_);
  Version& Entry(const std::string& name, const std::string& version)
      REQUIRES(mu_);
  // Empty: no traffic decides.
  std::string VersionFor(std::string_view name,
                         const RequestFields& fields) const REQUIRES(mu_);
  // Null: none of them serves.
  static const Version* ServingVersion(const Model& model,
                                       std::string_view version);
  StatusOr<std::shared_ptr<Servable>> Choose(std::string_view name,
                                             std::string_view version) const
      REQUIRES(mu_);

  // Repository's thread.
  Status DoLoad(const std::string& name, const std::string& config);
  Status DoLoadVersion(const std::string& name, const VersionPlan& plan);
  // OK when the version that serves is as the plan says, or has become so
  // without being loaded; anything else: it must be loaded.
  bool Adapt(const std::string& name, const VersionPlan& plan);
  Status DoUnload(const std::string& name);
  // Traffic of the plans from now on, shown in the configurations.
  void SetChoice(const std::string& name,
                 const config::TrafficSettings* traffic);
  void TakeOut(const std::string& name,
               const std::vector<std::string>& kept_versions);
  Status DoLoadAdapter(const AdapterPlan& plan);
  Status DoUnloadAdapter(const std::string& name);
  // Those that the settings of a version name, once it serves.
  Status LoadAdaptersOf(const std::string& name, const VersionPlan& plan);
  // The base that a plan means.
  StatusOr<std::shared_ptr<Servable>> BaseOf(const AdapterPlan& plan) const
      REQUIRES(mu_);
  // Adapters of a model go before it does.
  void TakeOutAdaptersOf(const std::string& base) REQUIRES(mu_);
  bool IsNews(const std::string& name, const std::vector<VersionPlan>& plans);
  void Poll();
  // Frees what has left and has no requests any more. True: some have.
  bool Retire();

  Status CheckControl() const;
  Status CheckAdapterUpdates() const;
  Status StillLoading(const std::string& what) const;

  const std::unique_ptr<ModelSource> source_;  // may be null
  const std::unique_ptr<ModelLoader> loader_;
  const bool allow_control_;
  const bool allow_adapter_updates_;
  const decltype(RepositoryOptions::make_choice) make_choice_;
  const LoadProgress* const progress_;

  // Gave way or was taken out, until its last request has ended.
  struct Retired {
    std::shared_ptr<Servable> servable;
    std::string name;
    // The next operation waits so long for its requests.
    std::chrono::steady_clock::time_point patience = {};
  };
  // Of those that left, one whose requests have ended by then, taken out; its
  // servable is null where there is none.
  Retired TakeRetired();
  void Free(Retired leaving);
  mutable Mutex mu_;
  std::vector<Model> models_ GUARDED_BY(mu_);  // in the order of loading
  std::vector<Retired> retired_ GUARDED_BY(mu_);
  ServerState state_ GUARDED_BY(mu_) = ServerState::kLoading;

  OperationQueue operations_;  // last: its thread uses all of the above
};

}  // namespace millrace::server
