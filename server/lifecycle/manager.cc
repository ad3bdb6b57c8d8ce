// The table of models. A reader would guess that draining empties the table:
// it does not, so that listings and metrics stay whole until the process ends;
// the gates alone keep new requests out.
#include "server/lifecycle/manager.h"

#include <string>
#include <utility>

namespace millrace::server {
Manager::~Manager() = default;

void Manager::Add(std::shared_ptr<Servable> servable) {
  MutexLock lock(mu_);
  servables_.push_back(std::move(servable));
}

StatusOr<ModelHandle> Manager::Borrow(std::string_view name,
                                      std::string_view version) const {
  std::shared_ptr<Servable> found;
  ServerState state;
  std::string known;
  {
    MutexLock lock(mu_);
    state = state_;
    for (const std::shared_ptr<Servable>& servable : servables_) {
      if (servable->IsNamed(name)) found = servable;
      known += (known.empty() ? "'" : ", '") + servable->id() + "'";
    }
  }
  if (state == ServerState::kLoading) {
    return Unavailable("the server is still loading its models; try again soon")
        .Because("loading")
        .RetryAfterMs(1000);
  }
  if (state == ServerState::kDraining) {
    return Unavailable(
               "the server is shutting down and takes no new requests; "
               "use another instance")
        .Because("draining")
        .RetryAfterMs(1000);
  }
  if (found == nullptr) {
    return NotFound("the model '" + std::string(name) +
                    "' does not exist here; this server has " +
                    (known.empty() ? std::string("none") : known))
        .At("model")
        .Because("model_not_found");
  }
  if (!version.empty() && version != found->version()) {
    return NotFound("model '" + std::string(name) + "' has no version '" +
                    std::string(version) + "'; it has version " +
                    found->version())
        .At("model_version")
        .Because("model_not_found");
  }
  Gate::Pass pass = found->gate().Enter();
  if (!pass) {
    return Unavailable("the model '" + std::string(name) +
                       "' is being unloaded; try again or use another model")
        .At("model")
        .Because("draining")
        .RetryAfterMs(1000);
  }
  return ModelHandle(std::move(found), std::move(pass));
}

std::vector<std::shared_ptr<Servable>> Manager::List() const {
  MutexLock lock(mu_);
  return servables_;
}

ServerState Manager::state() const {
  MutexLock lock(mu_);
  return state_;
}

void Manager::SetState(ServerState state) {
  MutexLock lock(mu_);
  state_ = state;
}

bool Manager::Drain(std::chrono::steady_clock::time_point deadline) {
  SetState(ServerState::kDraining);
  const std::vector<std::shared_ptr<Servable>> all = List();
  for (const std::shared_ptr<Servable>& servable : all)
    servable->gate().Close();
  bool ended_by_themselves = true;
  for (const std::shared_ptr<Servable>& servable : all) {
    // A request between its handle and its place in the queue is refused
    // there; the rest runs on until the deadline.
    ended_by_themselves &= servable->Drain(deadline);
    ended_by_themselves &= servable->gate().WaitEmpty(deadline);
  }
  return ended_by_themselves;
}

}  // namespace millrace::server
