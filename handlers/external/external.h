// The handler of a model that is a process of its own: a queue before one or
// several instances of the process. It takes tensors, and raw bytes as a task:
// each part of a request becomes a UINT8 tensor, each tensor of the answer a
// result.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/external_settings.h"
#include "handlers/external/instance.h"
#include "handlers/handler.h"
#include "handlers/model_lender.h"
#include "handlers/pool.h"
#include "handlers/sequences/sequence_place.h"
#include "handlers/task.h"

namespace millrace::handlers {

struct ExternalCounts {
  int64_t last_inference_ms = 0;  // Unix time
  int64_t num_success = 0;
  int64_t num_failure = 0;
  Clock::Duration success_time{0};
  Clock::Duration failure_time{0};
  Clock::Duration queue{0};  // of successes, as the next
  Clock::Duration compute{0};
};

// All outlive the handler and its requests.
struct ExternalParts {
  std::string model;
  std::string version;
  std::string folder;         // of the version; the process runs in it
  std::string handlers_path;  // of the bases that are shipped
  std::shared_ptr<const config::ExternalSettings> settings;  // never null
  int64_t num_instances = 1;
  int64_t max_waiting = 128;
  ModelLender* lender = nullptr;
  Pool* pool = nullptr;
  MetricRegistry* registry = nullptr;  // may be null
  const Clock* clock = &Clock::Real();
};

class ExternalHandler final : public SequencedHandler, public TaskHandler {
 public:
  // Waits until every process is ready. UNAVAILABLE or DEADLINE_EXCEEDED has
  // what one of them wrote.
  static StatusOr<std::unique_ptr<ExternalHandler>> Create(ExternalParts parts);
  ~ExternalHandler() override;

  using SequencedHandler::Start;
  void StartAt(SequencePlace place, TensorRequest request,
               TensorHandler::Done done, std::stop_token stop) override;
  void Start(TaskRequest request, TaskHandler::Done done,
             std::stop_token stop) override;
  Status HasPlace() const override;
  const std::vector<models::TensorSpec>& inputs() const override {
    return ports_.inputs;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return ports_.outputs;
  }

  // OK while a process is.
  Status Ready() const;
  // OK also while requests wait for one that is started again.
  Status Takes() const { return queue_.Takes(); }
  ExternalCounts counts() const;
  int64_t num_instances() const {
    return static_cast<int64_t>(instances_.size());
  }
  int64_t in_flight() const;
  // What waits ends with UNAVAILABLE.
  void Close();

 private:
  explicit ExternalHandler(ExternalParts parts);

  Status TryStart(const SequencePlace& place, TensorRequest& request,
                  const TensorHandler::Done& done, std::stop_token stop);
  // With `as_declared` an answer is held to the declared outputs.
  Status Submit(ExternalJob job, bool as_declared, TensorHandler::Done done);
  void Count(const StatusOr<TensorResponse>& response, Clock::Duration took);

  const ExternalParts parts_;
  ExternalQueue queue_;
  HandlerPorts ports_;
  mutable Mutex mu_;
  ExternalCounts counts_ GUARDED_BY(mu_);
  int64_t in_flight_ GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<ExternalInstance>> instances_;  // use the above
};

}  // namespace millrace::handlers
