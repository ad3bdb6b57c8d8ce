// Decides which waiting requests are computed together, and when.
//
//   former.Add(std::move(job));
//   BatchFormer::Decision decision = former.Form(clock.Now());
//
// Requests stand in the order: priority level, deadline (earliest first),
// arrival. One without a deadline, or with one that is far, stands as if its
// deadline were kPatience after its arrival: those whose deadlines are near
// pass it by for so long, not for ever. Those of one kind that follow each
// other in this order share a batch until it is full. A batch begins at once
// when it is full, has a preferred size or must begin for a deadline; else when
// its oldest request has waited for max_queue_delay. Requests of other kinds do
// not hold it up, unless preserve_ordering asks for the order of arrival.
//
// Reads no clock and takes no lock, so that tests can walk it through time.
// One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "scheduler/batch_job.h"
#include "scheduler/batching_options.h"

namespace millrace::scheduler {

// Why a request left the queue without being computed.
enum class BatchDrop {
  kClientGone,
  kDeadlinePassed,
  kDeadlineTooNear,  // computing it takes longer than it has left
  kQueueTimeout,
  kClosed,  // the queue was closed
};

class BatchFormer {
 public:
  static constexpr Clock::Duration kPatience = std::chrono::seconds(5);

  explicit BatchFormer(const BatchingOptions& options) : options_(options) {}

  // RESOURCE_EXHAUSTED when the job's priority level is full; the job stays
  // the caller's then.
  Status Add(std::unique_ptr<BatchJob>& job);

  struct Dropped {
    std::unique_ptr<BatchJob> job;
    BatchDrop why;
  };
  struct Decision {
    std::vector<std::unique_ptr<BatchJob>> jobs;  // empty: nothing to do yet
    BatchClosed closed = BatchClosed::kIdle;
    std::vector<Dropped> dropped;
    // When to ask again if nothing is added; kNever where nothing waits.
    Clock::Time wake = kNever;
  };
  Decision Form(Clock::Time now);
  // All that waits.
  std::vector<Dropped> Clear();

  // What one row has taken lately, 0 while that is not known: the time that
  // deadlines are held against.
  void SetRowTime(Clock::Duration row_time) {
    row_time_ = row_time;
    measured_ = true;
  }
  Clock::Duration row_time() const { return row_time_; }

  int32_t size() const { return static_cast<int32_t>(jobs_.size()); }

 private:
  // Consecutive jobs of one kind, as far as they fit one batch.
  struct Group {
    std::vector<size_t> members;  // indices into jobs_
    int32_t rows = 0;
    Clock::Time oldest = kNever;
    Clock::Time begin_by = kNever;  // for the earliest deadline
    // Index behind the last member of the largest preferred size; 0: none.
    size_t preferred_end = 0;
    bool full = false;
    bool limited_by_deadline = false;
    bool followed_by_another_kind = false;
  };

  void DropUnwanted(Clock::Time now, std::vector<Dropped>& dropped);
  std::vector<Group> Groups(Clock::Time now) const;
  // Adds the job unless it does not fit.
  void Join(Group& group, size_t index, Clock::Time now) const;
  // Whether the group begins now, why, and with how many of its members.
  bool Begins(const Group& group, Clock::Time now, BatchClosed& why,
              size_t& num_members) const;
  void Insert(std::unique_ptr<BatchJob> job);

  const BatchingOptions options_;
  std::vector<std::unique_ptr<BatchJob>> jobs_;  // in the order above
  std::map<int32_t, int32_t> waiting_by_level_;
  int64_t next_sequence_ = 0;
  Clock::Duration row_time_{0};
  bool measured_ = false;  // row_time_, since requests were dropped for it
};

}  // namespace millrace::scheduler
