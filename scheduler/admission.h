// Admission: counts the requests that run or wait at one engine or batcher, and
// refuses new ones at once when all places are taken.
//
//   ASSIGN_OR_RETURN(Reservation place, admission->Reserve(deadline));
//
// Retry-After follows what the model really finished lately, older endings
// weighing less (time constant 30 s). While all seats are taken, the rate of
// endings says how long a queue takes. Before as many endings are known from
// such a time as there are seats, the time that a request was computed says it:
// a rate counted at one request a time would promise minutes where 64 requests
// are computed together.
//
// Shared by its owner and every place given out, since a place may outlive
// the owner. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "scheduler/request.h"
#include "scheduler/reservation.h"

namespace millrace::scheduler {

struct AdmissionOptions {
  std::string model;                               // for messages
  int32_t max_num_seqs = 0;                        // served at the same time
  const char* max_num_seqs_name = "max_num_seqs";  // the setting, for messages
  int32_t max_queue_size = 0;                      // waiting beyond those
  // Requests take about the same time each, those of max_num_seqs together: a
  // deadline has to leave room for computing, too. False where a request says
  // how long it takes, as one for text does.
  bool alike = false;
  const Clock* clock = &Clock::Real();
  // Counted by reason; may count nothing.
  Counter queue_full, deadline, draining;
};

class Admission : public std::enable_shared_from_this<Admission> {
 public:
  static std::shared_ptr<Admission> Create(AdmissionOptions options);

  // See Engine::Reserve.
  StatusOr<Reservation> Reserve(Clock::Time deadline, int32_t places = 1,
                                const TenantShare& tenant = {});

  // A request has ended that was computed for so long; zero: it never began.
  // Its place is released apart.
  void CountCompletion(Clock::Duration computed);

  // No new places from now on.
  void Drain();
  // True when no place was left before the deadline.
  bool WaitEmpty(std::chrono::steady_clock::time_point deadline);

  // So many are served at the same time from now on.
  void SetMaxNumSeqs(int32_t max_num_seqs);

  int32_t places() const;
  int32_t in_use() const;
  bool draining() const;

 private:
  explicit Admission(AdmissionOptions options);
  void Release(uint32_t tenant);
  // Brings the decayed sums to this moment.
  void AdvanceTo(Clock::Time now) REQUIRES(mu_);
  // Seconds until `ahead` more requests have ended; negative: not known yet.
  double SecondsFor(int32_t ahead) const REQUIRES(mu_);
  // Seconds within which a request has begun, or is answered where requests are
  // alike, with `ahead` to end before; as above.
  double SecondsNeeded(int32_t ahead) const REQUIRES(mu_);

  const AdmissionOptions options_;

  mutable Mutex mu_;
  int32_t max_num_seqs_ GUARDED_BY(mu_);
  CondVar emptied_;
  int32_t in_use_ GUARDED_BY(mu_) = 0;
  std::map<uint32_t, int32_t> in_use_of_ GUARDED_BY(mu_);  // by tenant
  bool draining_ GUARDED_BY(mu_) = false;
  Clock::Time last_ GUARDED_BY(mu_);
  // All decayed alike.
  double completions_ GUARDED_BY(mu_) = 0;
  double full_completions_ GUARDED_BY(mu_) = 0;  // while all seats were taken
  double full_seconds_ GUARDED_BY(mu_) = 0;
  double computed_ GUARDED_BY(mu_) = 0;  // requests that were computed
  double computed_seconds_ GUARDED_BY(mu_) = 0;
  double busy_seconds_ GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::scheduler
