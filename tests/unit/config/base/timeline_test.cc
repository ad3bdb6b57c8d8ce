#include "config/base/timeline.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Clock::Time At(int64_t ns) { return Clock::Time(Clock::Duration(ns)); }

TEST(Timeline, KeepsSlicesOnlyWhileACaptureRuns) {
  Timeline timeline;
  const int track = timeline.Track("server", "handlers");
  EXPECT_EQ(timeline.Track("server", "handlers"), track);
  EXPECT_NE(timeline.Track("server", "requests"), track);
  timeline.Add({.track = track, .name = "before"});
  EXPECT_FALSE(timeline.on());
  ASSERT_TRUE(timeline.Start(At(5)));
  EXPECT_FALSE(timeline.Start(At(6)));
  EXPECT_TRUE(timeline.on());
  timeline.Add({.track = track, .name = "task", .begin = At(7), .end = At(8)});
  const TimelineCapture capture = timeline.Stop(At(9));
  timeline.Add({.track = track, .name = "after"});
  ASSERT_EQ(capture.slices.size(), 1u);
  EXPECT_EQ(capture.slices[0].name, "task");
  EXPECT_EQ(capture.tracks[static_cast<size_t>(track)].thread, "handlers");
  EXPECT_EQ(capture.begin, At(5));
  EXPECT_EQ(capture.end, At(9));
  EXPECT_FALSE(timeline.on());
  ASSERT_TRUE(timeline.Start(At(10)));
  EXPECT_TRUE(timeline.Stop(At(11)).slices.empty());
}

TEST(Timeline, WhatIsTooMuchIsDroppedAndCounted) {
  Timeline timeline;
  ASSERT_TRUE(timeline.Start(At(0)));
  timeline.Add(std::vector<TimelineSlice>(Timeline::kMaxSlices + 3));
  const TimelineCapture capture = timeline.Stop(At(1));
  EXPECT_EQ(capture.slices.size(), Timeline::kMaxSlices);
  EXPECT_EQ(capture.num_dropped, 3);
}

}  // namespace
}  // namespace millrace
