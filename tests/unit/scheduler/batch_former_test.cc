#include "scheduler/batch_former.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace millrace::scheduler {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct JobOptions {
  int32_t rows = 1;
  std::string kind = "a";
  Clock::Time deadline = kNever;
  int32_t priority = 0;
  Clock::Duration timeout{0};
  std::stop_token stop = {};
};

class BatchFormerTest : public testing::Test {
 protected:
  // Times of the tests, in milliseconds.
  static Clock::Time At(int ms) { return Clock::Time(milliseconds(ms)); }

  void Start(const BatchingOptions& options) { former_.emplace(options); }

  // Jobs are numbered in the order of this call, from 0.
  Status Add(int ms, const JobOptions& options = {}) {
    auto job = std::make_unique<BatchJob>();
    job->task.deadline = options.deadline;
    job->task.priority = options.priority;
    job->task.queue_timeout = options.timeout;
    job->task.stop = options.stop;
    job->submitted = At(ms);
    job->rows = options.rows;
    job->kind = options.kind;
    return former_->Add(job);
  }

  // Numbers of the jobs that begin at this time; why and when stay for the
  // test to look at.
  std::vector<int64_t> Form(int ms) {
    BatchFormer::Decision decision = former_->Form(At(ms));
    std::vector<int64_t> numbers;
    for (const auto& job : decision.jobs) numbers.push_back(job->sequence);
    closed_ = decision.closed;
    wake_ = decision.wake;
    dropped_.clear();
    why_.clear();
    for (const auto& [job, why] : decision.dropped) {
      dropped_.push_back(job->sequence);
      why_.push_back(why);
    }
    return numbers;
  }

  std::optional<BatchFormer> former_;
  BatchClosed closed_ = BatchClosed::kIdle;
  Clock::Time wake_;
  std::vector<int64_t> dropped_;
  std::vector<BatchDrop> why_;
};

TEST_F(BatchFormerTest, WithoutBatchingEachRequestIsABatch) {
  Start({});
  ASSERT_TRUE(Add(0).ok());
  ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(0), ElementsAre(0));
  EXPECT_EQ(closed_, BatchClosed::kFull);
  EXPECT_THAT(Form(0), ElementsAre(1));
  EXPECT_THAT(Form(0), IsEmpty());
  EXPECT_EQ(wake_, kNever);
}

TEST_F(BatchFormerTest, WithoutDelayAnIdleInstanceTakesWhatIsThere) {
  Start({.max_batch_size = 8});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(0), ElementsAre(0, 1, 2));
  EXPECT_EQ(closed_, BatchClosed::kIdle);
}

TEST_F(BatchFormerTest, FullBatchDoesNotWait) {
  Start({.max_batch_size = 2, .max_queue_delay = milliseconds(10)});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(0), ElementsAre(0, 1));
  EXPECT_EQ(closed_, BatchClosed::kFull);
  EXPECT_THAT(Form(0), IsEmpty());
  EXPECT_EQ(wake_, At(10));
}

TEST_F(BatchFormerTest, DelayCountsFromTheOldestRequest) {
  Start({.max_batch_size = 4, .max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Add(0).ok());
  ASSERT_TRUE(Add(9).ok());
  EXPECT_THAT(Form(9), IsEmpty());
  EXPECT_EQ(wake_, At(10));
  EXPECT_THAT(Form(10), ElementsAre(0, 1));
  EXPECT_EQ(closed_, BatchClosed::kDelay);
}

TEST_F(BatchFormerTest, RowsCountNotRequests) {
  Start({.max_batch_size = 4, .max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Add(0, {.rows = 3}).ok());
  ASSERT_TRUE(Add(0, {.rows = 2}).ok());
  EXPECT_THAT(Form(0), ElementsAre(0));
  EXPECT_EQ(closed_, BatchClosed::kFull);
  ASSERT_TRUE(Add(0, {.rows = 2}).ok());
  EXPECT_THAT(Form(0), ElementsAre(1, 2));
}

TEST_F(BatchFormerTest, RequestLargerThanTheBatchIsComputedByItself) {
  Start({.max_batch_size = 4, .max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Add(0, {.rows = 9}).ok());
  ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(0), ElementsAre(0));
}

TEST_F(BatchFormerTest, PreferredSizeDoesNotWait) {
  Start({.max_batch_size = 8,
         .max_queue_delay = milliseconds(10),
         .preferred_batch_sizes = {2, 4}});
  ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(0), IsEmpty());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Add(1).ok());
  // Five wait: the largest preferred size is taken, the fifth waits.
  EXPECT_THAT(Form(1), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(closed_, BatchClosed::kPreferred);
  EXPECT_THAT(Form(10), IsEmpty());
  EXPECT_THAT(Form(11), ElementsAre(4));
  EXPECT_EQ(closed_, BatchClosed::kDelay);
}

TEST_F(BatchFormerTest, OtherKindsDoNotHoldABatchUp) {
  Start({.max_batch_size = 2, .max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Add(0, {.kind = "a"}).ok());
  ASSERT_TRUE(Add(1, {.kind = "b"}).ok());
  ASSERT_TRUE(Add(2, {.kind = "b"}).ok());
  EXPECT_THAT(Form(2), ElementsAre(1, 2));
  ASSERT_TRUE(Add(3, {.kind = "a"}).ok());
  EXPECT_THAT(Form(3), ElementsAre(0, 3));
}

TEST_F(BatchFormerTest, OrderIsKeptWhereItIsAskedFor) {
  Start({.max_batch_size = 4,
         .max_queue_delay = milliseconds(10),
         .preserve_ordering = true});
  ASSERT_TRUE(Add(0, {.kind = "a"}).ok());
  ASSERT_TRUE(Add(0, {.kind = "b"}).ok());
  ASSERT_TRUE(Add(0, {.kind = "a"}).ok());
  EXPECT_THAT(Form(0), ElementsAre(0));
  EXPECT_EQ(closed_, BatchClosed::kMismatch);
  EXPECT_THAT(Form(0), ElementsAre(1));
}

TEST_F(BatchFormerTest, EarliestDeadlineIsFirst) {
  Start({});
  ASSERT_TRUE(Add(0).ok());
  ASSERT_TRUE(Add(0, {.deadline = At(500)}).ok());
  ASSERT_TRUE(Add(0, {.deadline = At(200)}).ok());
  EXPECT_THAT(Form(0), ElementsAre(2));
  EXPECT_THAT(Form(0), ElementsAre(1));
  EXPECT_THAT(Form(0), ElementsAre(0));
}

// Each step computes one request in 10 ms, and one comes that has 500 ms left:
// something more urgent waits always.
TEST_F(BatchFormerTest, RequestWithoutADeadlineDoesNotWaitForEver) {
  constexpr int kPatienceMs = BatchFormer::kPatience / milliseconds(1);
  for (const Clock::Time deadline : {kNever, At(60'000)}) {
    Start({});
    ASSERT_TRUE(Add(0, {.deadline = deadline}).ok());
    ASSERT_TRUE(Add(0, {.deadline = At(500)}).ok());
    int computed_at = -1;
    for (int ms = 0; ms < 20'000 && computed_at < 0; ms += 10) {
      ASSERT_TRUE(Add(ms, {.deadline = At(ms + 500)}).ok());
      const std::vector<int64_t> begun = Form(ms);
      ASSERT_EQ(begun.size(), 1u);
      ASSERT_THAT(dropped_, IsEmpty());
      if (begun[0] == 0) computed_at = ms;
    }
    EXPECT_GE(computed_at, kPatienceMs - 1000);
    EXPECT_LE(computed_at, kPatienceMs);
  }
}

TEST_F(BatchFormerTest, PatienceIsNoDeadline) {
  Start({.max_batch_size = 2, .max_queue_delay = milliseconds(20'000)});
  former_->SetRowTime(milliseconds(8));
  ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(10'000), IsEmpty());  // neither dropped nor begun for it
  EXPECT_THAT(dropped_, IsEmpty());
  EXPECT_EQ(wake_, At(20'000));
}

TEST_F(BatchFormerTest, BatchBeginsInTimeForItsDeadline) {
  Start({.max_batch_size = 4, .max_queue_delay = milliseconds(50)});
  former_->SetRowTime(milliseconds(5));
  ASSERT_TRUE(Add(0, {.deadline = At(20)}).ok());
  ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(0), IsEmpty());
  EXPECT_EQ(wake_, At(10));  // two rows take 10 ms
  EXPECT_THAT(Form(10), ElementsAre(0, 1));
  EXPECT_EQ(closed_, BatchClosed::kDeadline);
}

TEST_F(BatchFormerTest, BatchGrowsOnlyAsItsDeadlinesAllow) {
  Start({.max_batch_size = 8});
  former_->SetRowTime(milliseconds(5));
  ASSERT_TRUE(Add(0, {.deadline = At(12)}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Add(0).ok());
  EXPECT_THAT(Form(0), ElementsAre(0, 1));  // three rows would take 15 ms
  EXPECT_EQ(closed_, BatchClosed::kDeadline);
}

TEST_F(BatchFormerTest, DropsWhatNobodyWaitsForOrCannotBeInTime) {
  Start({});
  std::stop_source gone;
  former_->SetRowTime(milliseconds(8));
  ASSERT_TRUE(Add(0, {.stop = gone.get_token()}).ok());
  ASSERT_TRUE(Add(0, {.deadline = At(5)}).ok());
  ASSERT_TRUE(Add(0, {.deadline = At(12)}).ok());
  ASSERT_TRUE(Add(0).ok());
  gone.request_stop();
  EXPECT_THAT(Form(5), ElementsAre(3));
  EXPECT_THAT(dropped_, ElementsAre(1, 2, 0));
  EXPECT_THAT(
      why_, ElementsAre(BatchDrop::kDeadlinePassed, BatchDrop::kDeadlineTooNear,
                        BatchDrop::kClientGone));
}

TEST_F(BatchFormerTest, TooHighAnEstimateCorrectsItself) {
  Start({});
  former_->SetRowTime(milliseconds(1000));
  int refused = 0;
  for (; refused < 100; ++refused) {
    ASSERT_TRUE(Add(0, {.deadline = At(100)}).ok());
    if (!Form(0).empty()) break;
  }
  EXPECT_LT(refused, 30);
  EXPECT_GT(refused, 1);
}

TEST_F(BatchFormerTest, AnEstimateThatBatchesMeasureStands) {
  Start({});
  for (int batch = 0; batch < 3; ++batch) {
    former_->SetRowTime(milliseconds(10));
    ASSERT_TRUE(Add(0, {.deadline = At(5)}).ok());
    ASSERT_TRUE(Add(0, {.deadline = At(6)}).ok());
    EXPECT_THAT(Form(0), IsEmpty());
    EXPECT_EQ(dropped_.size(), 2u);
    EXPECT_EQ(former_->row_time(), milliseconds(10));
  }
}

TEST_F(BatchFormerTest, LowerLevelsAreFirstAndUnknownOnesAreTheDefault) {
  Start({.priority_levels = 3, .default_priority_level = 2});
  for (const int priority : {3, 0, 1, 9}) {
    ASSERT_TRUE(Add(0, {.priority = priority}).ok());
  }
  EXPECT_THAT(Form(0), ElementsAre(2));
  EXPECT_THAT(Form(0), ElementsAre(1));
  EXPECT_THAT(Form(0), ElementsAre(3));
  EXPECT_THAT(Form(0), ElementsAre(0));
}

TEST_F(BatchFormerTest, WithoutLevelsPriorityMeansNothing) {
  Start({});
  ASSERT_TRUE(Add(0, {.priority = 3}).ok());
  ASSERT_TRUE(Add(0, {.priority = 1}).ok());
  EXPECT_THAT(Form(0), ElementsAre(0));
}

TEST_F(BatchFormerTest, FullLevelIsRefusedByName) {
  Start({.priority_levels = 2,
         .default_priority_level = 2,
         .priority_queue_policies = {{1, {.max_queue_size = 1}}}});
  ASSERT_TRUE(Add(0, {.priority = 1}).ok());
  const Status refused = Add(0, {.priority = 1});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("priority level 1 has 1 requests waiting"));
  EXPECT_TRUE(Add(0, {.priority = 2}).ok());
  EXPECT_THAT(Form(0), ElementsAre(0));
  EXPECT_TRUE(Add(0, {.priority = 1}).ok());
}

TEST_F(BatchFormerTest, QueueTimeoutRejects) {
  Start({.default_queue_policy = {.default_timeout = milliseconds(10)}});
  ASSERT_TRUE(Add(0).ok());
  ASSERT_TRUE(Add(5, {.timeout = milliseconds(1)}).ok());  // may not override
  EXPECT_THAT(Form(10), ElementsAre(1));
  EXPECT_THAT(dropped_, ElementsAre(0));
  EXPECT_THAT(why_, ElementsAre(BatchDrop::kQueueTimeout));
}

TEST_F(BatchFormerTest, QueueTimeoutIsSeenBeforeTheDelayIsOver) {
  Start({.max_batch_size = 8,
         .max_queue_delay = milliseconds(100),
         .default_queue_policy = {.default_timeout = milliseconds(10)}});
  ASSERT_TRUE(Add(0).ok());
  ASSERT_TRUE(Add(5).ok());
  EXPECT_THAT(Form(5), IsEmpty());
  EXPECT_EQ(wake_, At(10));
  EXPECT_THAT(Form(10), IsEmpty());
  EXPECT_THAT(dropped_, ElementsAre(0));
  EXPECT_EQ(wake_, At(15));
}

TEST_F(BatchFormerTest, QueueTimeoutDelays) {
  Start({.default_queue_policy = {.timeout_action = TimeoutAction::kDelay,
                                  .default_timeout = milliseconds(10)}});
  ASSERT_TRUE(Add(0).ok());
  ASSERT_TRUE(Add(5).ok());
  EXPECT_THAT(Form(12), ElementsAre(1));
  EXPECT_THAT(dropped_, IsEmpty());
  EXPECT_THAT(Form(12), ElementsAre(0));
}

TEST_F(BatchFormerTest, RequestMayShortenItsTimeoutWhereThatIsAllowed) {
  Start({.default_queue_policy = {.default_timeout = milliseconds(10),
                                  .allow_timeout_override = true}});
  ASSERT_TRUE(Add(0, {.timeout = milliseconds(2)}).ok());
  ASSERT_TRUE(Add(0, {.timeout = milliseconds(50)}).ok());
  EXPECT_THAT(Form(2), ElementsAre(1));
  EXPECT_THAT(dropped_, ElementsAre(0));
  ASSERT_TRUE(Add(10, {.timeout = milliseconds(50)}).ok());
  EXPECT_THAT(Form(20), IsEmpty());
  EXPECT_THAT(dropped_, ElementsAre(2));
}

TEST_F(BatchFormerTest, ClearGivesAllBack) {
  Start({.max_batch_size = 4, .max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Add(0).ok());
  ASSERT_TRUE(Add(0).ok());
  EXPECT_EQ(former_->size(), 2);
  EXPECT_EQ(former_->Clear().size(), 2u);
  EXPECT_EQ(former_->size(), 0);
}

}  // namespace
}  // namespace millrace::scheduler
