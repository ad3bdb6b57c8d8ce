// One version of one model, ready to answer. What every model can be asked
// stands here; what kind it is decides which handler it has.
//
//   ASSIGN_OR_RETURN(handlers::TensorHandler * handler, model->ForTensors());
//
// Implementations: LanguageModel (text), GraphModel (tensors). Immutable but
// for what its parts guard themselves; thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/gate.h"
#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "handlers/handler.h"
#include "handlers/task.h"
#include "handlers/texts/text_task.h"
#include "models/text/generation_defaults.h"
#include "server/lifecycle/statistics.h"

namespace millrace::server {

// The version of a model that was given as a plain file or folder.
inline constexpr std::string_view kOnlyVersion = "1";

// An alias that stands for every name which no model has.
inline constexpr std::string_view kAnyName = "*";

// What metadata and listings tell of every kind of model.
struct ModelFacts {
  std::string id;  // name in the API
  std::string version = std::string(kOnlyVersion);
  // served_model_name. kAnyName: it answers for names that no model has.
  std::vector<std::string> aliases = {};
  std::string path = {};
  std::string parent = {};  // of an adapter: the id of its base
  int64_t created_unix = 0;
  std::string platform = {};  // "millrace_llama", "millrace_onnx"
  // What else is in its metadata, for people.
  std::vector<std::pair<std::string, std::string>> parameters = {};
};

// What listings tell of models that generate text.
struct TextFacts {
  int32_t max_model_len = 0;    // tokens of one sequence as it is served
  int32_t trained_context = 0;  // and as it was trained
  int64_t num_parameters = 0;
  int64_t file_bytes = 0;
  std::string quantization = {};  // the type of most weights: "Q4_1"
  // Sampling of requests that leave it out.
  models::GenerationDefaults default_sampling = {};
  int32_t max_num_seqs = 1;        // sequences that run at once
  std::string chat_template = {};  // Jinja; empty: none
  bool takes_images = false;       // in chats
};

enum class ModelKind { kText, kTensors };

class SessionPort;

class Servable {
 public:
  virtual ~Servable() = default;
  Servable(const Servable&) = delete;
  Servable& operator=(const Servable&) = delete;

  const ModelFacts& facts() const { return facts_; }
  const std::string& id() const { return facts_.id; }
  const std::string& version() const { return facts_.version; }
  // By its id or one of its aliases.
  bool IsNamed(std::string_view name) const;

  virtual ModelKind kind() const = 0;
  // Null unless it has a task.
  virtual handlers::TaskHandler* task() const { return nullptr; }
  // Null unless it generates text.
  virtual const TextFacts* text_facts() const { return nullptr; }

  // The handler of that task, or INVALID_ARGUMENT that says which kind of model
  // this is and where it answers.
  virtual StatusOr<handlers::GenerateHandler*> ForText() const = 0;
  virtual StatusOr<handlers::TensorHandler*> ForTensors() const = 0;
  // What `task` in its config.yaml says; a model without one refuses.
  StatusOr<handlers::TaskHandler*> ForTask() const;
  virtual StatusOr<handlers::TextHandler*> ForTexts() const;

  // What was computed since the load; none where it is counted with another
  // model, or not.
  virtual std::optional<ModelStatistics> statistics() const {
    return std::nullopt;
  }

  // How many compute requests at the same time; 1 for text, whose requests
  // share the steps of one engine.
  virtual int64_t instance_count() const { return 1; }
  // While it serves, without losing a request. `count` of each device that it
  // computes on. UNIMPLEMENTED for text.
  virtual Status SetInstanceCount(int64_t count);
  // Whether it has as many as settings that ask for `count` would give it. True
  // of models that make nothing of that number.
  virtual bool HasInstances(int64_t /*count*/) const { return true; }

  // Of a LoRA adapter: how much of it requests get that begin now.
  // UNIMPLEMENTED for what is none, or where its device cannot.
  virtual double adapter_scale() const { return 1; }
  virtual Status SetAdapterScale(double scale);

  // No new requests; running ones go on until the deadline, then end with
  // UNAVAILABLE. True if all of them ended by themselves.
  virtual bool Drain(std::chrono::steady_clock::time_point deadline) = 0;

  // Counts the handles that are lent; closed when the model leaves.
  Gate& gate() { return gate_; }

  // Its configuration as clients may ask for it, a JSON object; empty: none.
  std::string config_json() const;
  void set_config_json(std::string json);

  // How its sessions read binary messages; null: nothing is declared. Set
  // before it serves.
  const SessionPort* session_port() const { return session_port_.get(); }
  void set_session_port(std::shared_ptr<const SessionPort> port) {
    session_port_ = std::move(port);
  }

  // Kept as long as the model: series in /metrics, cores of its own.
  void Keep(std::shared_ptr<const void> part) {
    kept_.push_back(std::move(part));
  }

 protected:
  explicit Servable(ModelFacts facts) : facts_(std::move(facts)) {}

 private:
  const ModelFacts facts_;
  mutable Mutex mu_;
  std::string config_json_ GUARDED_BY(mu_);
  std::shared_ptr<const SessionPort> session_port_;
  std::vector<std::shared_ptr<const void>> kept_;
  Gate gate_;
};

}  // namespace millrace::server
