#include "server/lifecycle/instance_choice.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <utility>

#include "models/graph/execution_context.h"
#include "tests/support/test_graphs.h"

namespace millrace::server {
namespace {

using models::DType;
using models::Tensor;
using models::graph::ExecutionContext;

// Takes its time; facts are those of a real one.
class SlowContext final : public ExecutionContext {
 public:
  SlowContext(std::chrono::microseconds each, bool fails)
      : each_(each),
        fails_(fails),
        real_(std::move(
            *models::graph::CreateInstance(support::SumGraph(), {}))) {}

  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>&,
                                    const models::graph::RunOptions&) override {
    std::this_thread::sleep_for(each_);
    if (fails_) return ResourceExhausted("too large");
    return std::vector<Tensor>();
  }
  StatusOr<models::graph::TeamRoofline> MeasureRoofline() override {
    return real_->MeasureRoofline();
  }
  const std::shared_ptr<models::graph::CompiledGraph>& compiled_graph()
      const override {
    return real_->compiled_graph();
  }
  const std::vector<models::graph::Port>& inputs() const override {
    return real_->inputs();
  }
  const std::vector<models::graph::Port>& outputs() const override {
    return real_->outputs();
  }
  const std::vector<models::graph::Symbol>& symbols() const override {
    return real_->symbols();
  }
  const models::graph::BatchAxis& batch_axis() const override {
    return real_->batch_axis();
  }
  std::string PlanText() const override { return {}; }
  int64_t ArenaBytes() const override { return 0; }

 private:
  const std::chrono::microseconds each_;
  const bool fails_;
  const std::unique_ptr<ExecutionContext> real_;
};

std::vector<std::vector<Tensor>> Samples() {
  std::vector<std::vector<Tensor>> samples(1);
  samples[0].push_back(Tensor::Make(DType::kF32, {2, 2}));
  return samples;
}

// A run of one of `count` instances takes so many microseconds.
template <typename Cost>
InstanceChoice Choose(int64_t num_cores, const Cost& cost, bool fails = false) {
  return ChooseInstances(num_cores, Samples(), [&](int64_t count) {
    std::vector<std::unique_ptr<ExecutionContext>> contexts;
    for (int64_t i = 0; i < count; ++i) {
      contexts.push_back(std::make_unique<SlowContext>(
          std::chrono::microseconds(cost(count)), fails));
    }
    return contexts;
  });
}

TEST(InstanceChoice, ManyWhereRunsGainNothingFromMoreCores) {
  const InstanceChoice choice = Choose(6, [](int64_t) { return 5000; });
  EXPECT_EQ(choice.count, 6) << choice.text;
  for (const char* tried : {"1: ", ", 2: ", ", 4: ", ", 6: "}) {
    EXPECT_NE(choice.text.find(tried), std::string::npos) << choice.text;
  }
}

TEST(InstanceChoice, OneWhereRunsGainAllOfThem) {
  const InstanceChoice choice =
      Choose(4, [](int64_t count) { return 3000 * count * count; });
  EXPECT_EQ(choice.count, 1) << choice.text;
}

TEST(InstanceChoice, OneWhereNothingCanBeMeasured) {
  const auto cost = [](int64_t) { return 10; };
  EXPECT_EQ(Choose(1, cost).count, 1);
  EXPECT_EQ(Choose(4, cost, true).count, 1);
  EXPECT_EQ(Choose(4, cost, true).text, "");
}

}  // namespace
}  // namespace millrace::server
