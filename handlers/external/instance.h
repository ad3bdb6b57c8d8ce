// One process of an external handler and the thread that looks after it. It
// takes requests from the queue that all instances share, one at a time, and
// serves what the handler asks of other models meanwhile. A process that ends,
// hangs, grows beyond its memory or talks nonsense costs the request it has; it
// is started again, later each time that it fails at once.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/external_settings.h"
#include "handlers/messages.h"
#include "handlers/model_lender.h"
#include "handlers/pool.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

struct ExternalJob {
  std::vector<NamedTensor> inputs;
  std::vector<std::string> outputs;  // wanted; none: all
  std::string parameters;            // JSON; empty: none
  Clock::Time deadline = kNever;
  Clock::Time submitted{};
  std::stop_token stop;
  // On the instance's thread; short. `part` is given what the handler answers
  // before its response; null: such an answer is an error.
  std::function<void(TensorResponse)> part;
  std::function<void(StatusOr<TensorResponse>)> done;
};

// What waits for an instance. Bounded. While no instance serves, nothing comes
// in.
class ExternalQueue {
 public:
  explicit ExternalQueue(int64_t max_waiting) : max_waiting_(max_waiting) {}

  // RESOURCE_EXHAUSTED when it is full, UNAVAILABLE when it is closed or no
  // instance serves.
  Status Check() const;
  // The same of a full one: OK.
  Status Takes() const;
  Status Push(ExternalJob job);
  // Waits for a job until then; false: there is none.
  bool Pop(Clock::Time until, ExternalJob* job);
  // The instance of that number serves, or will soon: its process is started
  // again. Without the last one, what waits ends with `why`.
  void Join(int64_t instance);
  void Leave(int64_t instance, const Status& why);
  // Nothing more comes in; what waits ends with `status`.
  void Close(const Status& status);
  // Those whose time is over or whose client left.
  void EndStale(Clock::Time now);

 private:
  Status TakesLocked() const REQUIRES(mu_);
  Status CheckLocked() const REQUIRES(mu_);

  const int64_t max_waiting_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<ExternalJob> jobs_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
  std::set<int64_t> serving_ GUARDED_BY(mu_);
  Status why_none_ GUARDED_BY(mu_) = Unavailable("the handler is starting");
};

// All outlive the instance.
struct InstanceParts {
  std::string model;
  std::string version;
  std::string folder;         // of the version
  std::string handlers_path;  // of the bases that are shipped
  const config::ExternalSettings* settings = nullptr;
  ExternalQueue* queue = nullptr;
  ModelLender* lender = nullptr;
  const Clock* clock = &Clock::Real();
  Counter restarts;
  Gauge resident_bytes;
};

// The ports of the model, which the process sends when it is ready.
struct HandlerPorts {
  std::vector<models::TensorSpec> inputs;
  std::vector<models::TensorSpec> outputs;
};

class ExternalInstance {
 public:
  virtual ~ExternalInstance() = default;  // ends the process

  static std::unique_ptr<ExternalInstance> Start(const InstanceParts& parts,
                                                 int number);

  // Waits until it is ready for the first time; an error says why it is not:
  // what it wrote, how it ended.
  virtual StatusOr<HandlerPorts> AwaitReady() = 0;
  // OK, or UNAVAILABLE with the reason while it is being started again.
  virtual Status Ready() const = 0;
};

}  // namespace millrace::handlers
