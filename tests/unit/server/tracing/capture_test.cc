#include "server/tracing/capture.h"

#include <gtest/gtest.h>

#include <future>

namespace millrace::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Capturer, OneAtATimeAndAnotherAfterIt) {
  Timeline timeline;
  Capturer capturer(&timeline, &Clock::Real());
  std::promise<TimelineCapture> first;
  std::stop_source stop;
  ASSERT_TRUE(capturer
                  .Start(hours(1), stop.get_token(),
                         [&](TimelineCapture capture) -> Capturer::Send {
                           first.set_value(std::move(capture));
                           return nullptr;
                         })
                  .ok());
  const Status refused = capturer.Start(hours(1), {}, nullptr);
  EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists);
  timeline.Add({.track = 0, .name = "task"});
  stop.request_stop();  // the client left
  EXPECT_EQ(first.get_future().get().slices.size(), 1u);

  std::promise<void> second;
  Status again;
  do {  // the first one's thread is about to leave
    again = capturer.Start(milliseconds(1), {},
                           [&](const TimelineCapture&) -> Capturer::Send {
                             return [&second] { second.set_value(); };
                           });
  } while (!again.ok());
  second.get_future().wait();
  // The next capture may begin once the answer is there.
  EXPECT_TRUE(
      capturer
          .Start(milliseconds(1), {},
                 [](const TimelineCapture&) { return Capturer::Send(); })
          .ok());
}

TEST(Capturer, TheEndOfTheServerEndsACapture) {
  Timeline timeline;
  Capturer capturer(&timeline, &Clock::Real());
  bool done = false;
  ASSERT_TRUE(capturer
                  .Start(hours(1), {},
                         [&](const TimelineCapture&) -> Capturer::Send {
                           return [&done] { done = true; };
                         })
                  .ok());
  capturer.Stop();
  EXPECT_TRUE(done);
  EXPECT_FALSE(capturer.Start(hours(1), {}, nullptr).ok());
}

}  // namespace
}  // namespace millrace::server
