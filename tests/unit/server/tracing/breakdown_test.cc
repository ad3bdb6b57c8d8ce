#include "server/tracing/breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::server {
namespace {

using testing::HasSubstr;

Clock::Time Ms(int64_t ms) {
  return Clock::Time(std::chrono::milliseconds(ms));
}

std::string Lines(const TimelineCapture& capture) {
  std::string text;
  for (const std::string& line : Breakdown(capture)) text += line + "\n";
  return text;
}

// 100 ms, of which steps take 60: 40 decode and 20 with 3 of 4 rows of prompts.
TimelineCapture Example() {
  TimelineCapture capture;
  capture.begin = Ms(1000);
  capture.end = Ms(1100);
  capture.tracks = {{"model m", "steps"},
                    {"model m", "worker 0"},
                    {"model m", "worker 1"},
                    {"server", "handler-0"},
                    {"server", "requests"}};
  const auto add = [&](int track, const char* name, int64_t from, int64_t to,
                       double rows = 0, double prompt_rows = 0) {
    capture.slices.push_back(
        {.track = track,
         .name = name,
         .begin = Ms(from),
         .end = Ms(to),
         .numbers = {{{"rows", rows}, {"prompt_rows", prompt_rows}}}});
  };
  add(0, "decode", 1000, 1040, 2);
  add(0, "mixed", 1050, 1070, 4, 3);
  add(1, "attention", 1000, 1030);
  add(1, "head", 1030, 1040);
  add(2, "attention", 1000, 1040);
  add(3, "task", 1035, 1045);
  add(4, "request", 900, 1070);
  add(4, "queue", 900, 920);
  return capture;
}

TEST(Breakdown, SaysWhereTheTimeWent) {
  const std::string text = Lines(Example());
  EXPECT_THAT(text, HasSubstr("model m: idle 40.0%, busy 60.0% with 2 steps of "
                              "30.0 ms and 3.0 rows on average; prefill 25.0%, "
                              "decode 75.0%"));
  EXPECT_THAT(text, HasSubstr("phases: attention 75.0%, head 25.0%"));
  EXPECT_THAT(text, HasSubstr("requests: 1 ended; on average in the queue "
                              "20.0 ms, prefill none"));
  EXPECT_THAT(text, HasSubstr("handlers worked 10.0 ms in 1 tasks, 50.0% of it "
                              "while a model computed"));
}

TEST(Breakdown, CountsWhatReachesBeyondTheCaptureUpToItsEdge) {
  TimelineCapture capture = Example();
  capture.slices = {capture.slices[0]};
  capture.slices[0].begin = Ms(500);
  EXPECT_THAT(Lines(capture), HasSubstr("idle 60.0%, busy 40.0%"));
}

TEST(Breakdown, PaddingIsThatOfAllBatches) {
  TimelineCapture capture = Example();
  EXPECT_THAT(Lines(capture), HasSubstr("padding waste: none; steps"));
  capture.tracks.push_back({"model padded", "instance 0"});
  for (const double padding : {0, 30}) {
    capture.slices.push_back({.track = 5,
                              .name = "batch",
                              .begin = Ms(1000),
                              .end = Ms(1010),
                              .numbers = {{{"rows", 2},
                                           {"requests", 2},
                                           {"values", 45},
                                           {"padding", padding}}}});
  }
  EXPECT_THAT(Lines(capture),
              HasSubstr("padding waste: model padded 25.0% of the elements of "
                        "its inputs, others none\n"));
}

TEST(Breakdown, AnIdleServerAndDroppedSlicesAreSaid) {
  TimelineCapture capture;
  capture.end = capture.begin + std::chrono::seconds(2);
  capture.num_dropped = 7;
  const std::string text = Lines(capture);
  EXPECT_THAT(text, HasSubstr("no model computed anything during 2.0 s"));
  EXPECT_THAT(text, HasSubstr("requests: none ended"));
  EXPECT_THAT(text, HasSubstr("7 slices were dropped"));
}

}  // namespace
}  // namespace millrace::server
