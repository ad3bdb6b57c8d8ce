// Shadows over a fake lender: what is compared, dropped, and never told.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "handlers/shadow/compare_outputs.h"
#include "handlers/shadow/shadow_handler.h"
#include "handlers/shadow/shadow_runner.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;

Tensor Floats(std::vector<float> values) {
  return Tensor::From<float>(DType::kF32, {static_cast<int64_t>(values.size())},
                             values);
}

std::vector<NamedTensor> Named(const std::string& name, Tensor tensor) {
  std::vector<NamedTensor> all;
  all.push_back({name, std::move(tensor)});
  return all;
}

TEST(CompareOutputs, FloatsWithinTheTolerance) {
  const auto compare = [](std::vector<float> a, std::vector<float> b,
                          double tolerance) {
    return CompareOutputs(Named("y", Floats(std::move(a))),
                          Named("y", Floats(std::move(b))), tolerance);
  };
  EXPECT_TRUE(compare({1, 2}, {1, 2}, 0).alike);
  EXPECT_FALSE(compare({1, 2}, {1, 2.5}, 0).alike);
  EXPECT_EQ(compare({1, 2}, {1, 2.5}, 0).largest, 0.5);
  EXPECT_TRUE(compare({3}, {3.5}, 0.125).alike);  // 0.5 <= 0.125 * 4
  EXPECT_FALSE(compare({3}, {3.5}, 0.124).alike);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(compare({infinity, nan}, {infinity, nan}, 0).alike);
  EXPECT_FALSE(compare({infinity}, {-infinity}, 1).alike);
  EXPECT_FALSE(compare({1}, {nan}, 1e6).alike);
  EXPECT_EQ(compare({1}, {nan}, 1).largest, 0);
  EXPECT_FALSE(compare({1}, {1, 1}, 1).alike);
}

TEST(CompareOutputs, NamesTypesAndIntegers) {
  EXPECT_FALSE(
      CompareOutputs(Named("y", Floats({1})), Named("z", Floats({1})), 1)
          .alike);
  EXPECT_FALSE(
      CompareOutputs(Named("y", Floats({1})),
                     Named("y", Tensor::Int64s(std::vector<int64_t>{1})), 1)
          .alike);
  const auto of = [](int64_t value) {
    return Named("y", Tensor::Int64s(std::vector<int64_t>{value}));
  };
  EXPECT_TRUE(CompareOutputs(of(7), of(7), 0).alike);
  EXPECT_FALSE(CompareOutputs(of(7), of(8), 100).alike);
  EXPECT_FALSE(CompareOutputs(of(7), {}, 100).alike);
}

// Adds a number to its input; answers at once, or when it is let go.
class Adds final : public TensorHandler {
 public:
  explicit Adds(float number) : number_(number) {}
  void Start(TensorRequest request, Done done, std::stop_token) override {
    std::unique_lock lock(mu);
    ++num_asked;
    priorities.push_back(request.priority);
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return !hold; });
    lock.unlock();
    if (fails) return done(Internal("broken"));
    TensorResponse response;
    response.outputs = Named(
        "y",
        Floats({request.inputs.front().tensor.data<float>()[0] + number_}));
    done(std::move(response));
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<models::TensorSpec>& inputs() const override {
    return specs_;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return specs_;
  }

  std::mutex mu;
  std::condition_variable changed;
  bool hold = false;
  std::atomic<bool> fails = false;
  std::atomic<int> num_asked = 0;
  std::vector<int32_t> priorities;

 private:
  const float number_;
  const std::vector<models::TensorSpec> specs_;
};

class OneModel final : public ModelLender {
 public:
  explicit OneModel(TensorHandler* handler) : handler_(handler) {}
  StatusOr<LentModel> Lend(const std::string&, const std::string& name,
                           const std::string& version) override {
    if (name != "m" || version != "2") return NotFound("no such model");
    return LentModel{.handler = handler_, .hold = std::make_shared<int>()};
  }
  void Forget(const std::string&) override {}

 private:
  TensorHandler* const handler_;
};

class ShadowTest : public testing::Test {
 protected:
  std::unique_ptr<TensorHandler> Make(config::ShadowSettings settings,
                                      const std::string& version = "1") {
    auto real = std::make_unique<Adds>(1);
    real_ = real.get();
    return MakeShadowHandler(
        std::move(real),
        {.model = "m",
         .version = version,
         .settings = std::make_shared<const config::ShadowSettings>(settings),
         .runner = &runner_,
         .registry = &registry_});
  }
  // The answer to `x`.
  static float Ask(TensorHandler& handler, float x, int32_t priority = 0) {
    TensorRequest request;
    request.inputs = Named("x", Floats({x}));
    request.priority = priority;
    request.trace = std::make_shared<Trace>();
    float answer = -1;
    handler.Start(std::move(request),
                  [&](StatusOr<TensorResponse> response) {
                    if (response.ok()) {
                      answer =
                          response->outputs.front().tensor.data<float>()[0];
                    }
                  },
                  {});
    return answer;
  }
  double Count(const std::string& result) {
    const ShadowCounts counts(registry_, {{"model", "m"},
                                          {"version", "1"},
                                          {"shadow_model", "m"},
                                          {"shadow_version", "2"}});
    return result == "equal"       ? counts.equal.value()
           : result == "different" ? counts.different.value()
           : result == "failed"    ? counts.failed.value()
                                   : counts.dropped.value();
  }
  bool Await(const std::string& result, double count) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (Count(result) < count && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Count(result) == count;
  }

  MetricRegistry registry_;
  Adds shadow_{1};
  OneModel lender_{&shadow_};
  ShadowRunner runner_{&lender_};
  Adds* real_ = nullptr;  // of the last handler
};

const config::ShadowSettings kAll = {.targets = {{.version = "2"}}};

TEST_F(ShadowTest, EqualAnswersAreCounted) {
  const auto handler = Make(kAll);
  EXPECT_EQ(Ask(*handler, 4), 5);
  EXPECT_TRUE(Await("equal", 1));
  const std::lock_guard lock(shadow_.mu);
  EXPECT_EQ(shadow_.priorities, std::vector<int32_t>{-1});
}

TEST_F(ShadowTest, AShareIsTakenExactly) {
  const auto handler = Make({.targets = {{.version = "2", .percent = 12.5}}});
  for (int i = 0; i < 80; ++i) EXPECT_EQ(Ask(*handler, 4), 5);
  EXPECT_TRUE(Await("equal", 10));
}

TEST_F(ShadowTest, DifferentAndFailedAnswersReachNobody) {
  Adds other(2);
  OneModel lender(&other);
  ShadowRunner runner(&lender);
  const auto handler = MakeShadowHandler(
      std::make_unique<Adds>(1),
      {.model = "m",
       .version = "1",
       .settings = std::make_shared<const config::ShadowSettings>(kAll),
       .runner = &runner,
       .registry = &registry_});
  EXPECT_EQ(Ask(*handler, 4), 5);
  EXPECT_TRUE(Await("different", 1));
  other.fails = true;
  EXPECT_EQ(Ask(*handler, 4), 5);
  EXPECT_TRUE(Await("failed", 1));
}

TEST_F(ShadowTest, ARequestThatFailedHasNoShadow) {
  const auto handler = Make(kAll);
  real_->fails = true;
  EXPECT_EQ(Ask(*handler, 4), -1);
  real_->fails = false;
  EXPECT_EQ(Ask(*handler, 4), 5);
  EXPECT_TRUE(Await("equal", 1));
  EXPECT_EQ(shadow_.num_asked, 1);
}

TEST_F(ShadowTest, AShadowsOwnRequestHasNone) {
  const auto handler = Make(kAll);
  EXPECT_EQ(Ask(*handler, 4, -1), 5);
  EXPECT_EQ(Ask(*handler, 4), 5);
  EXPECT_TRUE(Await("equal", 1));
  EXPECT_EQ(shadow_.num_asked, 1);
}

TEST_F(ShadowTest, TheVersionItselfIsNoTarget) {
  const auto handler = Make(kAll, "2");
  EXPECT_EQ(Ask(*handler, 4), 5);
  runner_.Stop();
  EXPECT_EQ(shadow_.num_asked, 0);
}

TEST_F(ShadowTest, AHeldShadowHoldsNoRequestAndTheRestIsDropped) {
  const auto handler = Make(kAll);
  shadow_.hold = true;
  for (int i = 0; i < ShadowRunner::kMaxJobs + 50; ++i) {
    EXPECT_EQ(Ask(*handler, 4), 5);
  }
  EXPECT_EQ(Count("dropped"), 50);
  {
    const std::lock_guard lock(shadow_.mu);
    shadow_.hold = false;
    shadow_.changed.notify_all();
  }
  EXPECT_TRUE(Await("equal", static_cast<double>(ShadowRunner::kMaxJobs)));
  EXPECT_EQ(Ask(*handler, 4), 5);
  EXPECT_TRUE(Await("equal", static_cast<double>(ShadowRunner::kMaxJobs + 1)));
}

}  // namespace
}  // namespace millrace::handlers
