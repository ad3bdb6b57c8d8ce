#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace millrace::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AdmissionTest : public testing::Test {
 protected:
  std::shared_ptr<Admission> Make(int32_t max_num_seqs, int32_t max_queue,
                                  bool alike = false) {
    AdmissionOptions options;
    options.model = "m";
    options.max_num_seqs = max_num_seqs;
    options.max_queue_size = max_queue;
    options.alike = alike;
    options.clock = &clock_;
    return Admission::Create(options);
  }
  // Ends one request every `every`, `n` times, each replaced by the next.
  void Serve(Admission& admission, int n, Clock::Duration every) {
    for (int i = 0; i < n; ++i) {
      clock_.Advance(every);
      admission.CountCompletion(every);
    }
  }
  std::vector<Reservation> Fill(Admission& admission, int n) {
    std::vector<Reservation> places;
    for (int i = 0; i < n; ++i) {
      auto place = admission.Reserve(kNever);
      EXPECT_TRUE(place.ok()) << place.status().ToString();
      if (place.ok()) places.push_back(std::move(*place));
    }
    return places;
  }

  FakeClock clock_;
};

TEST_F(AdmissionTest, PlacesAreRunningPlusWaiting) {
  auto admission = Make(2, 3);
  auto places = Fill(*admission, 5);
  const Status refused = admission->Reserve(kNever).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("queue is full (5 requests"));
  places.pop_back();
  EXPECT_EQ(admission->in_use(), 4);
  EXPECT_TRUE(admission->Reserve(kNever).ok());
}

// Another try would be refused, too.
TEST_F(AdmissionTest, MoreCompletionsThanATenantMayHaveAreNotAskedForAgain) {
  auto admission = Make(8, 0);
  const TenantShare tenant{.id = 1, .weight = 1, .alone = false};
  const Status refused = admission->Reserve(kNever, 8, tenant).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.field(), "n");
  EXPECT_EQ(refused.retry_after_ms(), 0);
  EXPECT_TRUE(admission->Reserve(kNever, 7, tenant).ok());
  const TenantShare alone{.id = 1, .weight = 1, .alone = true};
  EXPECT_TRUE(admission->Reserve(kNever, 8, alone).ok());
}

TEST_F(AdmissionTest, ATenantThatIsNotAloneLeavesTheLastEighth) {
  auto admission = Make(8, 8);
  const TenantShare flood{.id = 1, .weight = 1, .alone = false};
  const TenantShare quiet{.id = 2, .weight = 1, .alone = false};
  std::vector<Reservation> places;
  for (int i = 0; i < 14; ++i) {
    auto place = admission->Reserve(kNever, 1, flood);
    ASSERT_TRUE(place.ok()) << i;
    places.push_back(std::move(*place));
  }
  EXPECT_EQ(admission->Reserve(kNever, 1, flood).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(admission->Reserve(kNever, 2, quiet).ok());
  places.pop_back();
  EXPECT_TRUE(admission->Reserve(kNever, 1, flood).ok());
}

TEST_F(AdmissionTest, SeveralPlacesAreGivenTogetherOrNotAtAll) {
  auto admission = Make(2, 3);
  auto places = Fill(*admission, 2);
  EXPECT_EQ(admission->Reserve(kNever, 4).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(admission->in_use(), 2);
  {
    StatusOr<Reservation> three = admission->Reserve(kNever, 3);
    ASSERT_TRUE(three.ok());
    EXPECT_EQ(admission->in_use(), 5);
    Reservation one = three->Split();
    three->Release();
    EXPECT_EQ(admission->in_use(), 3);
    EXPECT_FALSE(three->Split());
    EXPECT_TRUE(one);
  }
  EXPECT_EQ(admission->in_use(), 2);
}

TEST_F(AdmissionTest, RetryAfterFollowsTheServiceRate) {
  auto admission = Make(2, 8);
  auto places = Fill(*admission, 10);
  Serve(*admission, 20, milliseconds(500));
  // Nine requests end before one that came now would run, at two a second.
  EXPECT_NEAR(admission->Reserve(kNever).status().retry_after_ms(), 4'500, 50);
  Serve(*admission, 200, milliseconds(100));
  const int64_t faster = admission->Reserve(kNever).status().retry_after_ms();
  EXPECT_GE(faster, 1'000);
  EXPECT_LT(faster, 2'000);
  Serve(*admission, 20, seconds(30));
  EXPECT_EQ(admission->Reserve(kNever).status().retry_after_ms(), 60'000);
}

// 101 requests are ahead of 64 seats: at one request each 1.5 s that would be
// 150 s, but they are computed 64 at a time.
TEST_F(AdmissionTest, SingleRequestsDoNotSayHowLongAFullQueueTakes) {
  auto admission = Make(64, 100);
  for (int i = 0; i < 20; ++i) {
    auto place = Fill(*admission, 1);
    Serve(*admission, 1, milliseconds(1'500));
  }
  auto places = Fill(*admission, 164);
  EXPECT_NEAR(admission->Reserve(kNever).status().retry_after_ms(), 2'367, 20);
}

// All began together: the first one to end says little of the rate, but how
// long a request takes.
TEST_F(AdmissionTest, TheFirstEndingOfACrowdIsNotTakenForTheRate) {
  auto admission = Make(4, 8);
  auto places = Fill(*admission, 12);
  Serve(*admission, 1, seconds(3));
  // Nine are ahead of a new one: two rounds and a quarter of 3 s.
  EXPECT_NEAR(admission->Reserve(kNever).status().retry_after_ms(), 6'750, 50);
}

TEST_F(AdmissionTest, ARequestThatNeverBeganTellsNothing) {
  auto admission = Make(4, 0);
  {
    auto places = Fill(*admission, 2);
    Serve(*admission, 1, seconds(8));
    admission->CountCompletion(Clock::Duration::zero());
  }
  auto places = Fill(*admission, 4);
  EXPECT_EQ(admission->Reserve(kNever).status().retry_after_ms(), 2'000);
}

TEST_F(AdmissionTest, RetryAfterIsASecondWhenNothingIsKnown) {
  auto admission = Make(1, 0);
  auto places = Fill(*admission, 1);
  EXPECT_EQ(admission->Reserve(kNever).status().retry_after_ms(), 1'000);
}

TEST_F(AdmissionTest, IdleTimeDoesNotSlowTheRate) {
  auto admission = Make(1, 1);
  {
    auto places = Fill(*admission, 2);
    Serve(*admission, 10, seconds(2));
  }
  clock_.Advance(std::chrono::hours(8));
  auto places = Fill(*admission, 2);
  EXPECT_NEAR(admission->Reserve(kNever).status().retry_after_ms(), 4'000, 100);
}

TEST_F(AdmissionTest, RefusesADeadlineThatHasPassed) {
  auto admission = Make(1, 1);
  EXPECT_EQ(admission->Reserve(clock_.Now()).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(admission->in_use(), 0);
}

TEST_F(AdmissionTest, RefusesADeadlineThatCannotBeMet) {
  auto admission = Make(1, 10);
  auto places = Fill(*admission, 5);
  // Without evidence every deadline gets its chance.
  EXPECT_TRUE(admission->Reserve(clock_.Now() + milliseconds(1)).ok());
  Serve(*admission, 20, seconds(1));
  // Five ahead at one a second.
  EXPECT_TRUE(admission->Reserve(clock_.Now() + seconds(6)).ok());
  const Status refused = admission->Reserve(clock_.Now() + seconds(4)).status();
  EXPECT_EQ(refused.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NEAR(refused.retry_after_ms(), 5'000, 100);
  EXPECT_TRUE(admission->Reserve(kNever).ok());
}

TEST_F(AdmissionTest, DeadlinesOfRequestsThatAreAlikeCoverTheirComputing) {
  for (const bool alike : {false, true}) {
    auto admission = Make(2, 10, alike);
    auto places = Fill(*admission, 2);
    // Batches of two take two seconds.
    for (int i = 0; i < 10; ++i) {
      clock_.Advance(seconds(2));
      admission->CountCompletion(seconds(2));
      admission->CountCompletion(seconds(2));
    }
    const auto takes = [&](int ms) {
      return admission->Reserve(clock_.Now() + milliseconds(ms)).ok();
    };
    // The batch under way, its own, and a tenth.
    EXPECT_EQ(takes(4'200), !alike);
    EXPECT_TRUE(takes(4'600));
    EXPECT_NE(admission->Reserve(clock_.Now() + milliseconds(100))
                  .status()
                  .message()
                  .find(alike ? "takes about 4" : "waits about 1"),
              std::string_view::npos);
    // One more batch stands before it.
    places.push_back(*admission->Reserve(kNever));
    places.push_back(*admission->Reserve(kNever));
    EXPECT_EQ(takes(6'400), !alike);
    EXPECT_TRUE(takes(6'800));
  }
}

TEST_F(AdmissionTest, DeadlineIsNotDoubtedWhileThereIsAFreeSeat) {
  auto admission = Make(2, 10);
  auto places = Fill(*admission, 1);
  Serve(*admission, 20, seconds(10));
  EXPECT_TRUE(admission->Reserve(clock_.Now() + milliseconds(1)).ok());
}

TEST_F(AdmissionTest, DrainingRefusesAndWaitsForTheLastPlace) {
  auto admission = Make(1, 1);
  std::optional<Reservation> place = std::move(*admission->Reserve(kNever));
  admission->Drain();
  EXPECT_EQ(admission->Reserve(kNever).status().code(),
            StatusCode::kUnavailable);
  EXPECT_FALSE(admission->WaitEmpty(std::chrono::steady_clock::now()));
  std::thread leaver([&] { place.reset(); });
  EXPECT_TRUE(admission->WaitEmpty(std::chrono::steady_clock::now() +
                                   std::chrono::minutes(2)));
  leaver.join();
}

TEST_F(AdmissionTest, PlaceMayOutliveItsAdmission) {
  auto admission = Make(1, 1);
  Reservation place = std::move(*admission->Reserve(kNever));
  const std::weak_ptr<Admission> watch = admission;
  admission.reset();
  place.Release();
  place.Release();  // once is enough
  EXPECT_TRUE(watch.expired());
}

TEST_F(AdmissionTest, ManyThreadsNeverHoldMoreThanThePlaces) {
  auto admission = Make(3, 2);
  std::atomic<int> held{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2'000; ++i) {
        std::vector<Reservation> mine;
        for (int k = 0; k < 3; ++k) {
          auto place = admission->Reserve(kNever);
          if (!place.ok()) continue;
          const int now = ++held;
          int before = most;
          while (before < now && !most.compare_exchange_weak(before, now)) {
          }
          mine.push_back(std::move(*place));
        }
        held -= static_cast<int>(mine.size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 5);
  EXPECT_EQ(admission->in_use(), 0);
}

}  // namespace
}  // namespace millrace::scheduler
