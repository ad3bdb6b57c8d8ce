#include "server/tracing/timeline_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace::server {
namespace {

Clock::Time Us(int64_t us) {
  return Clock::Time(std::chrono::microseconds(us));
}

TEST(TimelineJson, TracksBecomeThreadsAndSlicesEvents) {
  TimelineCapture capture;
  capture.begin = Us(100);
  capture.tracks = {{"model \"m\"", "steps"}, {"server", "requests"}};
  capture.slices.push_back({.track = 0,
                            .name = "operator",
                            .label = "Conv 3x3\n",
                            .begin = Us(110),
                            .end = Us(115),
                            .numbers = {{{"rows", 4}}}});
  capture.slices.push_back({.track = 1,
                            .name = "request",
                            .label = "POST",
                            .begin = Us(90),
                            .end = Us(130),
                            .id = 8});
  capture.num_dropped = 2;
  const auto json = nlohmann::json::parse(TimelineJson(capture, {"idle 3%"}));
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0]["args"]["name"], "model \"m\"");
  EXPECT_EQ(events[1]["name"], "thread_name");
  EXPECT_EQ(events[4],
            nlohmann::json({{"name", "Conv 3x3\n"},
                            {"pid", 1},
                            {"tid", 1},
                            {"ph", "X"},
                            {"ts", 10.0},
                            {"dur", 5.0},
                            {"args", {{"what", "Conv 3x3\n"}, {"rows", 4}}}}));
  EXPECT_EQ(events[5]["ph"], "b");
  EXPECT_EQ(events[5]["ts"], -10.0);
  EXPECT_EQ(events[6]["ph"], "e");
  EXPECT_EQ(events[6]["id"], 8);
  EXPECT_EQ(events[6]["ts"], 30.0);
  EXPECT_EQ(json["otherData"]["breakdown"][0], "idle 3%");
  EXPECT_EQ(json["otherData"]["slices_dropped"], 2);
}

}  // namespace
}  // namespace millrace::server
