// Admission and the former of batches under ten times the load that they can
// serve, in simulated time: one instance computes a batch of 8 in 80 ms and
// fewer in proportion, and each request has to be answered within a second.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/admission.h"
#include "scheduler/batch_former.h"

namespace millrace::scheduler {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSeats = 8;
constexpr double kArrivalsPerSecond = 1000;
constexpr auto kDeadline = seconds(1);

struct Counts {
  int in_time = 0;
  int late = 0;     // answered after the deadline
  int dropped = 0;  // had waited, and were not computed
};

class OverloadTest : public testing::Test {
 protected:
  // Computes for so long and adds to the counts; each batch takes batch_time.
  void Run(Clock::Duration duration, Clock::Duration batch_time) {
    const Clock::Time end = clock_.Now() + duration;
    std::exponential_distribution<double> gap(kArrivalsPerSecond);
    while (clock_.Now() < end) {
      if (running_.empty()) Begin(batch_time);
      const Clock::Time next =
          running_.empty() ? arrival_ : std::min(arrival_, done_);
      clock_.Advance(next - clock_.Now());
      if (!running_.empty() && clock_.Now() >= done_) End();
      if (clock_.Now() < arrival_) continue;
      Arrive();
      arrival_ += duration_cast<Clock::Duration>(
          std::chrono::duration<double>(gap(random_)));
    }
  }

  void Arrive() {
    const Clock::Time deadline = clock_.Now() + kDeadline;
    StatusOr<Reservation> place = admission_->Reserve(deadline);
    if (!place.ok()) return;
    auto job = std::make_unique<BatchJob>();
    job->submitted = clock_.Now();
    job->task.deadline = deadline;
    job->rows = 1;
    job->place = *std::move(place);
    ASSERT_TRUE(former_.Add(job).ok());
  }

  void Begin(Clock::Duration batch_time) {
    BatchFormer::Decision decision = former_.Form(clock_.Now());
    counts_.dropped += static_cast<int>(decision.dropped.size());
    running_ = std::move(decision.jobs);
    took_ = batch_time * static_cast<int>(running_.size()) / kSeats;
    done_ = clock_.Now() + took_;
  }

  void End() {
    former_.SetRowTime(took_ / static_cast<int>(running_.size()));
    for (const auto& job : running_) {
      admission_->CountCompletion(took_);
      ++(clock_.Now() <= job->task.deadline ? counts_.in_time : counts_.late);
    }
    running_.clear();
  }

  FakeClock clock_;
  std::shared_ptr<Admission> admission_ =
      Admission::Create({.model = "m",
                         .max_num_seqs = kSeats,
                         .max_queue_size = 100,
                         .alike = true,
                         .clock = &clock_,
                         .queue_full = {},
                         .deadline = {},
                         .draining = {}});
  BatchFormer former_{
      {.max_batch_size = kSeats, .max_queue_delay = milliseconds(2)}};
  std::mt19937 random_{7};
  Clock::Time arrival_ = clock_.Now();
  std::vector<std::unique_ptr<BatchJob>> running_;
  Clock::Time done_ = kNever;
  Clock::Duration took_{0};
  Counts counts_;
};

TEST_F(OverloadTest, WhatIsTakenIsAnsweredInTime) {
  Run(seconds(20), milliseconds(80));
  const int most = 20'000 / 80 * kSeats;
  EXPECT_GE(counts_.in_time, most * 95 / 100);
  EXPECT_LE(counts_.late + counts_.dropped, most / 100);
}

TEST_F(OverloadTest, AModelThatBecomesSlowerIsNotAskedTooMuchForLong) {
  Run(seconds(20), milliseconds(80));
  counts_ = {};
  Run(seconds(20), milliseconds(96));
  const int most = 20'000 / 96 * kSeats;
  EXPECT_GE(counts_.in_time, most * 95 / 100);
  EXPECT_LE(counts_.late + counts_.dropped, most * 5 / 100);
}

}  // namespace
}  // namespace millrace::scheduler
