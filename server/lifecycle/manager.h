// The models being served: loads them, lends handles, drains and unloads. A
// model cannot unload while a handle of it is held.
//
//   ASSIGN_OR_RETURN(ModelHandle model, manager.Borrow("smollm2"));
//   model->handler->Start(...);        // keep the handle until OnEnd
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/gate.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "handlers/handler.h"
#include "models/llm/model.h"
#include "scheduler/batcher.h"
#include "scheduler/engine.h"

namespace millrace::server {

// One version of one model, ready to answer: a language model, which generates
// text, or a graph, which computes tensors. Immutable but for what its parts
// guard themselves.
struct Servable {
  std::string id;  // name in the API
  std::string version = "1";
  std::vector<std::string> aliases;  // served_model_name
  std::string path;
  int64_t created_unix = 0;
  std::string platform;  // "millrace_llama", "millrace_onnx"
  // What else its metadata tells, for people.
  std::vector<std::pair<std::string, std::string>> parameters;

  // Of language models. The handler uses the engine.
  models::LlmInfo info;
  int32_t max_model_len = 0;
  std::string chat_template;  // its source, or empty
  std::unique_ptr<scheduler::Engine> engine;
  std::unique_ptr<handlers::GenerateHandler> handler;

  // Of graphs. The handler uses the batcher.
  std::unique_ptr<scheduler::Batcher> batcher;
  std::unique_ptr<handlers::TensorHandler> tensor_handler;

  Gauge load_seconds;  // of this load, shown as long as the model is here

  Gate gate;  // counts handles

  bool is_graph() const { return tensor_handler != nullptr; }
  // The handler of that task, or INVALID_ARGUMENT that says which kind of model
  // this is and where it answers.
  StatusOr<handlers::GenerateHandler*> ForText() const;
  StatusOr<handlers::TensorHandler*> ForTensors() const;
};

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
