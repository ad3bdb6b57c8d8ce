// Lends the repository's models to models that call others. It is made before
// the repository, whose loader needs it, and bound to it afterwards.
//
// Thread-safe once bound.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "config/base/mutex.h"
#include "handlers/model_lender.h"
#include "server/lifecycle/repository.h"

namespace millrace::server {

class RepositoryLender final : public handlers::ModelLender {
 public:
  // Before the first load; it outlives the models.
  void Bind(Repository* repository) { repository_ = repository; }

  // Also while the server loads, and for the last requests while it drains.
  StatusOr<handlers::LentModel> Lend(const std::string& caller,
                                     const std::string& name,
                                     const std::string& version) override;
  StatusOr<handlers::LentModel> LendForRequest(
      const std::string& caller, const std::string& name,
      const std::string& version) override;
  Status Ready(const std::string& caller, const std::string& name,
               const std::string& version) override;
  StatusOr<handlers::LentText> LendText(const std::string& caller,
                                        const std::string& name,
                                        const std::string& version) override;
  void Forget(const std::string& caller) override;

  bool Serves(const std::string& name) const {
    return !repository_->VersionsOf(name).empty();
  }
  Repository* repository() const { return repository_; }

 private:
  // A handle of the model, which `caller` may call.
  StatusOr<ModelHandle> Borrow(const std::string& caller,
                               const std::string& name,
                               const std::string& version,
                               const RequestFields* fields = nullptr);
  // Notes that `caller` calls `name`; FAILED_PRECONDITION if `name` calls it
  // back, itself or through others.
  Status Note(const std::string& caller, const std::string& name);

  Repository* repository_ = nullptr;
  Mutex mu_;
  std::map<std::string, std::set<std::string>> calls_ GUARDED_BY(mu_);
};

}  // namespace millrace::server
