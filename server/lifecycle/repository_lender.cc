#include "server/lifecycle/repository_lender.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/lifecycle/composite.h"

namespace millrace::server {
namespace {

// A model that calls has no headers: weights alone choose.
class NoFields final : public RequestFields {
 public:
  std::string_view Header(std::string_view /*name*/) const override {
    return {};
  }
};

StatusOr<handlers::LentModel> LentOf(StatusOr<ModelHandle> borrowed) {
  ASSIGN_OR_RETURN(ModelHandle handle, std::move(borrowed));
  handlers::LentModel lent;
  ASSIGN_OR_RETURN(lent.handler, handle->ForTensors());
  lent.depth = DepthOf(*handle);
  lent.hold = std::make_shared<ModelHandle>(std::move(handle));
  return lent;
}

}  // namespace

Status RepositoryLender::Note(const std::string& caller,
                              const std::string& name) {
  MutexLock lock(mu_);
  if (const auto at = calls_.find(caller);
      at != calls_.end() && at->second.count(name) > 0) {
    return OkStatus();
  }
  std::vector<std::string> reached = {name};
  for (size_t i = 0; i < reached.size(); ++i) {
    if (reached[i] == caller) {
      return FailedPrecondition(
                 "the model '" + caller + "' cannot call '" + name + "', " +
                 (name == caller ? std::string("itself")
                                 : "because that model calls it back") +
                 "; they could wait for each other forever")
          .At("model");
    }
    const auto at = calls_.find(reached[i]);
    if (at == calls_.end()) continue;
    for (const std::string& next : at->second) {
      if (std::find(reached.begin(), reached.end(), next) == reached.end()) {
        reached.push_back(next);
      }
    }
  }
  calls_[caller].insert(name);
  return OkStatus();
}

void RepositoryLender::Forget(const std::string& caller) {
  MutexLock lock(mu_);
  calls_.erase(caller);
}

StatusOr<ModelHandle> RepositoryLender::Borrow(const std::string& caller,
                                               const std::string& name,
                                               const std::string& version,
                                               const RequestFields* fields) {
  if (version.empty() && fields != nullptr) {
    StatusOr<ModelHandle> handle = repository_->Borrow(name, version, fields);
    if (handle.ok()) {
      RETURN_IF_ERROR(Note(caller, name));
      RETURN_IF_ERROR(TakesOf(**handle));
      return handle;
    }
    // It may be lent although the server loads or drains.
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Servable> servable,
                   repository_->Find(name, version));
  Gate::Pass pass = servable->gate().Enter();
  if (!pass) {
    return Unavailable("the model '" + name +
                       "' is leaving and takes no new requests")
        .Because("draining")
        .RetryAfterMs(1000);
  }
  RETURN_IF_ERROR(Note(caller, name));
  RETURN_IF_ERROR(TakesOf(*servable));
  return ModelHandle(std::move(servable), std::move(pass));
}

StatusOr<handlers::LentModel> RepositoryLender::Lend(
    const std::string& caller, const std::string& name,
    const std::string& version) {
  return LentOf(Borrow(caller, name, version));
}

StatusOr<handlers::LentModel> RepositoryLender::LendForRequest(
    const std::string& caller, const std::string& name,
    const std::string& version) {
  const NoFields none;
  return LentOf(Borrow(caller, name, version, &none));
}

Status RepositoryLender::Ready(const std::string& caller,
                               const std::string& name,
                               const std::string& version) {
  ASSIGN_OR_RETURN(const ModelHandle handle, Borrow(caller, name, version));
  return ReadyOf(*handle);
}

StatusOr<handlers::LentText> RepositoryLender::LendText(
    const std::string& caller, const std::string& name,
    const std::string& version) {
  ASSIGN_OR_RETURN(ModelHandle handle, Borrow(caller, name, version));
  handlers::LentText lent;
  ASSIGN_OR_RETURN(lent.handler, handle->ForText());
  lent.hold = std::make_shared<ModelHandle>(std::move(handle));
  return lent;
}

}  // namespace millrace::server
