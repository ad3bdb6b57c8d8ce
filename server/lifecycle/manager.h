// The models being served: loads them, lends handles, drains and unloads. A
// model cannot unload while a handle of it is held.
//
//   ASSIGN_OR_RETURN(ModelHandle model, manager.Borrow("smollm2"));
//   model->handler->Start(...);        // keep the handle until OnEnd
//
// Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/gate.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "server/lifecycle/servable.h"

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

class Manager {
 public:
  Manager() = default;
  ~Manager();

  void Add(std::shared_ptr<Servable> servable);

  // By id or alias, and by version unless that is empty. NOT_FOUND with reason
  // "model_not_found", UNAVAILABLE while loading or draining.
  StatusOr<ModelHandle> Borrow(std::string_view name,
                               std::string_view version = {}) const;
  // A view for listings; may be held for the length of a request.
  std::vector<std::shared_ptr<Servable>> List() const;

  ServerState state() const;
  void SetState(ServerState state);

  // Draining: refuses new handles, lets running requests end until the
  // deadline. True if all of them ended by themselves.
  bool Drain(std::chrono::steady_clock::time_point deadline);

 private:
  mutable Mutex mu_;
  std::vector<std::shared_ptr<Servable>> servables_ GUARDED_BY(mu_);
  ServerState state_ GUARDED_BY(mu_) = ServerState::kLoading;
};

}  // namespace millrace::server
