#include "server/lifecycle/load_progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace millrace::server {
namespace {

using std::chrono::milliseconds;

// Only ever reached when something is broken.
constexpr auto kPatience = std::chrono::seconds(20);

TEST(LoadProgress, TellsWhatIsLoadedAndHowFarItIs) {
  LoadProgress progress;
  progress.Expect(2);
  EXPECT_EQ(progress.Sentence(), "0 of 2 models are ready");
  {
    LoadProgress::Load load(&progress, "m", "1", "m.gguf");
    EXPECT_EQ(progress.Sentence(),
              "0 of 2 models are ready, 'm' is being loaded");
    EXPECT_EQ(progress.TimeLeft(), milliseconds(1000)) << "nothing is known";
    load.Report(0.426);
    EXPECT_EQ(progress.Sentence(), "0 of 2 models are ready, 'm' is at 43 %");
    EXPECT_EQ(progress.state().model, "m");
  }
  progress.CountReady();
  EXPECT_EQ(progress.Sentence(), "1 of 2 models are ready");
  EXPECT_LT(progress.state().done, 0);
}

TEST(LoadProgress, TimeLeftFollowsTheSpeedSoFar) {
  LoadProgress progress;
  LoadProgress::Load load(&progress, "m", "1", "m.gguf");
  load.Report(1e-9);
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_EQ(progress.TimeLeft(), milliseconds(60'000));
  load.Report(0.01);
  const auto left = progress.TimeLeft();
  EXPECT_GE(left, milliseconds(1000));
  load.Report(1);
  EXPECT_EQ(progress.TimeLeft(), milliseconds(1000));
}

TEST(LoadProgress, LogsTheBeginAndALineForEachInterval) {
  testing::internal::CaptureStderr();
  std::string log;
  const auto wait_for = [&](const std::string& line) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (log.find(line) == std::string::npos &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
      log += testing::internal::GetCapturedStderr();
      testing::internal::CaptureStderr();
    }
    EXPECT_NE(log.find(line), std::string::npos) << line << " in " << log;
  };
  LoadProgress progress({}, milliseconds(2));
  {
    LoadProgress::Load load(&progress, "m", "3", "m.gguf");
    wait_for("loading model model=m version=3 path=m.gguf");
    wait_for("still loading model model=m seconds=");
    load.Report(0.5);
    wait_for("still loading model model=m done=\"50 %\" seconds=");
  }
  testing::internal::GetCapturedStderr();
}

TEST(LoadProgress, WhatIsShownIsNotLogged) {
  std::mutex mu;
  std::vector<LoadProgress::State> shown;
  const auto num_shown = [&] {
    const std::lock_guard<std::mutex> lock(mu);
    return shown.size();
  };
  testing::internal::CaptureStderr();
  {
    LoadProgress progress(
        [&](const LoadProgress::State& state) {
          const std::lock_guard<std::mutex> lock(mu);
          shown.push_back(state);
        },
        milliseconds(2));
    LoadProgress::Load load(&progress, "m", "1", "m.gguf");
    load.Report(0.5);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (num_shown() < 3 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("still loading"), std::string::npos) << log;
  ASSERT_GE(shown.size(), 4u) << "begin, report, a tick, end";
  EXPECT_EQ(shown.front().model, "m");
  EXPECT_EQ(shown[1].done, 0.5);
  EXPECT_EQ(shown.back().model, "");
}

}  // namespace
}  // namespace millrace::server
