// What TorchServe's management API does, whichever wire it came by. The
// registry says at once what shall serve; the repository brings it about on its
// own thread, which answers where the client waits.
//
// Thread-safe. Call it on the handler pool: archives are unpacked.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "server/lifecycle/operation_queue.h"
#include "server/lifecycle/repository.h"
#include "server/torchserve/registry.h"

namespace millrace::server::torchserve {

class Workflows;

// A change that was made, or is under way.
struct Change {
  bool is_done = true;  // false: it goes on (202 over REST)
  std::string text;     // "Model \"x\" unregistered"
};

class Management {
 public:
  // Both outlive it and every `done`.
  Management(Registry* registry, Repository* repository)
      : registry_(*registry),
        repository_(*repository),
        downloads_(OperationQueue::Options{}, true) {}

  // Ends downloads, of workflows, too, and refuses new ones: what waits for one
  // ends with UNAVAILABLE. Before the repository leaves; more than once, maybe.
  void StopDownloads();

  // Once, before any request; `workflows` leaves after the last one.
  void Bind(Workflows* workflows) { workflows_ = workflows; }
  Workflows& workflows() const { return *workflows_; }

  // For the log of metrics: a model's workers serve after so long.
  void Loaded(const std::string& name,
              std::chrono::duration<double> duration) const;

  // INVALID_ARGUMENT ("method_not_allowed") where models may not be registered.
  Status CheckEnabled() const;

  // Whether the caller sees the model.
  using MayUse = std::function<bool(const std::string& name)>;
  // {"nextPageToken": "…", "models": […]}. `limit` beyond 1 to 100: 100.
  std::string List(int64_t limit, int64_t first, const MayUse& may_use) const;
  // A list of one version, or of "all". NOT_FOUND as Registry::Find.
  StatusOr<std::string> Describe(const std::string& name,
                                 const std::string& version,
                                 bool customized) const;

  // Called once, on any thread.
  using Done = std::function<void(const StatusOr<Change>&)>;
  // An archive at an address is fetched first, on a thread of its own, one at a
  // time. `wait`: `done` is called when the workers serve or cannot, else once
  // the archive is there. A
  // registration whose model cannot be loaded is taken back.
  void Register(const RegisterRequest& request, bool wait, Done done);
  void Scale(const std::string& name, const std::string& version,
             int64_t min_workers, int64_t max_workers, bool wait, Done done);
  StatusOr<Change> SetDefault(const std::string& name,
                              const std::string& version);
  void Unregister(const std::string& name, const std::string& version,
                  Done done);

 private:
  // Makes the repository serve what the registry says of this model.
  void Apply(const std::string& name, Repository::Done done);
  Status TryRegister(const RegisterRequest& request, bool wait,
                     const Done& done);
  Status TryScale(const std::string& name, const std::string& version,
                  int64_t min_workers, int64_t max_workers, bool wait,
                  const Done& done);

  Registry& registry_;
  Repository& repository_;
  Workflows* workflows_ = nullptr;
  std::stop_source stop_downloads_;
  OperationQueue downloads_;  // last: its thread uses all of the above
};

// A name of `runtime` that clients may give; there is only one here.
Status CheckRuntime(std::string_view runtime);

}  // namespace millrace::server::torchserve
