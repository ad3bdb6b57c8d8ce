// Jobs are kept sorted. One walk over them builds the groups that could be
// computed; the first group that may begin wins.
#include "scheduler/batch_former.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace millrace::scheduler {
namespace {

// The deadline by which the job is ordered.
Clock::Time UrgencyOf(const BatchJob& job) {
  return std::min(job.task.deadline, job.submitted + BatchFormer::kPatience);
}

bool ComesBefore(const BatchJob& a, const BatchJob& b) {
  const auto place = [](const BatchJob& job) {
    return std::tuple(job.delayed, job.level, UrgencyOf(job), job.sequence);
  };
  return place(a) < place(b);
}

Clock::Time Before(Clock::Time time, Clock::Duration by) {
  return time == kNever ? kNever : time - by;
}

}  // namespace

std::string_view BatchClosedName(BatchClosed closed) {
  switch (closed) {
    case BatchClosed::kFull:
      return "full";
    case BatchClosed::kPreferred:
      return "preferred";
    case BatchClosed::kDelay:
      return "delay";
    case BatchClosed::kMismatch:
      return "mismatch";
    case BatchClosed::kDeadline:
      return "deadline";
    case BatchClosed::kIdle:
      return "idle";
  }
  return "";
}

Status BatchFormer::Add(std::unique_ptr<BatchJob>& job) {
  job->level = options_.LevelOf(job->task.priority);
  const QueuePolicy& policy = options_.PolicyOf(job->level);
  int32_t& waiting = waiting_by_level_[job->level];
  if (policy.max_queue_size > 0 && waiting >= policy.max_queue_size) {
    return ResourceExhausted("priority level " + std::to_string(job->level) +
                             " has " + std::to_string(waiting) +
                             " requests waiting, which is its max_queue_size; "
                             "send the request later or raise it")
        .Because("queue_full");
  }
  Clock::Duration timeout = policy.default_timeout;
  const Clock::Duration own = job->task.queue_timeout;
  if (policy.allow_timeout_override && own.count() > 0 &&
      (timeout.count() == 0 || own < timeout)) {
    timeout = own;
  }
  if (timeout.count() > 0) job->expires = job->submitted + timeout;
  job->sequence = next_sequence_++;
  ++waiting;
  Insert(std::move(job));
  return OkStatus();
}

void BatchFormer::Insert(std::unique_ptr<BatchJob> job) {
  const auto at = std::upper_bound(
      jobs_.begin(), jobs_.end(), job,
      [](const auto& a, const auto& b) { return ComesBefore(*a, *b); });
  jobs_.insert(at, std::move(job));
}

void BatchFormer::DropUnwanted(Clock::Time now, std::vector<Dropped>& dropped) {
  std::vector<std::unique_ptr<BatchJob>> kept, delayed;
  bool too_near = false;
  kept.reserve(jobs_.size());
  for (std::unique_ptr<BatchJob>& job : jobs_) {
    const BatchTask& task = job->task;
    const auto drop = [&](BatchDrop why) {
      --waiting_by_level_[job->level];
      dropped.push_back({std::move(job), why});
    };
    if (task.stop.stop_requested()) {
      drop(BatchDrop::kClientGone);
    } else if (now >= task.deadline) {
      drop(BatchDrop::kDeadlinePassed);
    } else if (now > Before(task.deadline, job->rows * row_time_)) {
      too_near = true;
      drop(BatchDrop::kDeadlineTooNear);
    } else if (!job->delayed && now >= job->expires) {
      if (options_.PolicyOf(job->level).timeout_action ==
          TimeoutAction::kReject) {
        drop(BatchDrop::kQueueTimeout);
      } else {
        job->delayed = true;
        delayed.push_back(std::move(job));
      }
    } else {
      kept.push_back(std::move(job));
    }
  }
  jobs_ = std::move(kept);
  for (std::unique_ptr<BatchJob>& job : delayed) Insert(std::move(job));
  // Where requests are dropped for it again and none was computed meanwhile,
  // the estimate falls, so that a model that has become faster is tried again.
  // Under load each batch measures it anew: there it must not fall, or requests
  // would be taken that come too late.
  if (!too_near) return;
  if (!measured_) row_time_ = row_time_ * 9 / 10;
  measured_ = false;
}

void BatchFormer::Join(Group& group, size_t index, Clock::Time now) const {
  const BatchJob& job = *jobs_[index];
  const int64_t rows = int64_t{group.rows} + job.rows;
  const Clock::Time begin_by =
      std::min(Before(group.begin_by, job.rows * row_time_),
               Before(job.task.deadline, rows * row_time_));
  if (!group.members.empty()) {
    if (rows > options_.max_batch_size) {
      group.full = true;
      return;
    }
    if (begin_by < now) {
      group.limited_by_deadline = true;
      return;
    }
  }
  group.members.push_back(index);
  group.rows = static_cast<int32_t>(rows);
  group.begin_by = begin_by;
  group.oldest = std::min(group.oldest, job.submitted);
  group.full = rows >= options_.max_batch_size;
  if (std::binary_search(options_.preferred_batch_sizes.begin(),
                         options_.preferred_batch_sizes.end(), rows)) {
    group.preferred_end = group.members.size();
  }
}

std::vector<BatchFormer::Group> BatchFormer::Groups(Clock::Time now) const {
  std::vector<Group> groups;
  std::unordered_map<std::string_view, size_t> group_of_kind;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const auto [at, is_new] =
        group_of_kind.try_emplace(jobs_[i]->kind, groups.size());
    if (is_new) {
      if (options_.preserve_ordering && !groups.empty()) {
        groups[0].followed_by_another_kind = true;
        break;
      }
      groups.emplace_back();
    }
    Group& group = groups[at->second];
    if (!group.full && !group.limited_by_deadline) Join(group, i, now);
  }
  return groups;
}

bool BatchFormer::Begins(const Group& group, Clock::Time now, BatchClosed& why,
                         size_t& num_members) const {
  num_members = group.members.size();
  if (group.full) {
    why = BatchClosed::kFull;
    return true;
  }
  if (group.preferred_end > 0) {
    num_members = group.preferred_end;
    why = BatchClosed::kPreferred;
    return true;
  }
  if (group.limited_by_deadline || now >= group.begin_by) {
    why = BatchClosed::kDeadline;
    return true;
  }
  if (group.followed_by_another_kind) {
    why = BatchClosed::kMismatch;
    return true;
  }
  if (options_.max_queue_delay.count() == 0) {
    why = BatchClosed::kIdle;
    return true;
  }
  why = BatchClosed::kDelay;
  return now - group.oldest >= options_.max_queue_delay;
}

BatchFormer::Decision BatchFormer::Form(Clock::Time now) {
  Decision decision;
  DropUnwanted(now, decision.dropped);
  for (const Group& group : Groups(now)) {
    size_t num_members = 0;
    if (!Begins(group, now, decision.closed, num_members)) {
      decision.wake = std::min({decision.wake, group.begin_by,
                                group.oldest + options_.max_queue_delay});
      continue;
    }
    for (size_t i = 0; i < num_members; ++i) {
      std::unique_ptr<BatchJob>& job = jobs_[group.members[i]];
      --waiting_by_level_[job->level];
      decision.jobs.push_back(std::move(job));
    }
    std::erase(jobs_, nullptr);
    return decision;
  }
  for (const auto& job : jobs_) {
    if (!job->delayed) decision.wake = std::min(decision.wake, job->expires);
  }
  return decision;
}

std::vector<BatchFormer::Dropped> BatchFormer::Clear() {
  std::vector<Dropped> dropped;
  for (std::unique_ptr<BatchJob>& job : jobs_) {
    dropped.push_back({std::move(job), BatchDrop::kClosed});
  }
  jobs_.clear();
  waiting_by_level_.clear();
  return dropped;
}

}  // namespace millrace::scheduler
