// What a capture is told of the batches that are run.
#include "scheduler/batch_runner.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/scheduler/fake_context.h"

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Tensor;
using models::graph::Port;
using models::graph::Symbol;

std::unique_ptr<BatchJob> Job(int64_t length) {
  auto job = std::make_unique<BatchJob>();
  job->task.inputs.push_back(Tensor::Make(DType::kF32, {1, length}));
  return job;
}

// Of the one batch that these requests are, while a capture runs.
std::map<std::string, double> Told(const RaggedRows& ragged,
                                   std::vector<int64_t> lengths) {
  const JaggedRows none;
  FakeClock clock;
  Timeline timeline;
  BatchRunner runner(ragged, none, &clock, "m", &timeline);
  FakeControl control;
  FakeContext context(&control);
  std::vector<std::unique_ptr<BatchJob>> jobs;
  for (const int64_t length : lengths) jobs.push_back(Job(length));
  EXPECT_TRUE(timeline.Start(clock.Now()));
  BatchTimes times;
  const auto outputs =
      runner.Run(context, jobs, std::vector<int32_t>(jobs.size(), 1), times);
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  std::map<std::string, double> numbers;
  for (const TimelineSlice& slice : timeline.Stop(clock.Now()).slices) {
    if (slice.name != "batch") continue;
    for (const auto& [name, value] : slice.numbers) {
      if (name != nullptr) numbers[name] += value;
    }
  }
  return numbers;
}

TEST(BatchRunner, ACaptureIsToldWhatIsPadding) {
  const std::vector<Symbol> symbols = {{.name = "n", .min = 1, .max = 64},
                                       {.name = "length", .min = 1, .max = 64}};
  Port x;
  x.name = "x";
  x.dims = {{.symbol = 0}, {.symbol = 1}};
  Port y = x;
  y.name = "y";
  const auto ragged = RaggedRows::Create({{{.name = "x"}}}, {x}, {y}, symbols);
  ASSERT_TRUE(ragged.ok()) << ragged.status().ToString();
  using Numbers = std::map<std::string, double>;
  // Both become 8 long.
  EXPECT_EQ(
      Told(*ragged, {3, 5}),
      (Numbers{{"rows", 2}, {"requests", 2}, {"values", 8}, {"padding", 8}}));
  EXPECT_EQ(
      Told(*ragged, {3}),
      (Numbers{{"rows", 1}, {"requests", 1}, {"values", 3}, {"padding", 0}}));
  EXPECT_EQ(Told({}, {2, 2}), (Numbers{{"rows", 2}, {"requests", 2}}))
      << "nothing of this model is ever padded";
}

}  // namespace
}  // namespace millrace::scheduler
