#include "handlers/ensemble/ensemble.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "handlers/ensemble/condition.h"
#include "models/tensor/float16.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using config::EnsembleSettings;
using models::DType;
using models::Tensor;
using models::TensorSpec;

TensorSpec Spec(const std::string& name) {
  return {
      .name = name, .dtype = DType::kF32, .dims = {-1}, .text = "FP32 [-1]"};
}

// Gives y = x + 1 when the test says so.
class FakeModel final : public SequencedHandler {
 public:
  void StartAt(SequencePlace place, TensorRequest request, Done done,
               std::stop_token stop) override {
    place_ = std::move(place);
    stop_ = std::move(stop);
    bytes_ = request.inputs[0].tensor.bytes();
    value_ = *request.inputs[0].tensor.data<float>();
    done_ = std::move(done);
    if (at_once) Answer();
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

  bool started() const { return done_ != nullptr; }
  void Answer() {
    TensorResponse response;
    Tensor y = Tensor::Make(DType::kF32, {1});
    *y.data<float>() = value_ + 1;
    response.outputs.push_back({"y", std::move(y)});
    std::exchange(done_, nullptr)(std::move(response));
  }
  void Fail() { std::exchange(done_, nullptr)(Internal("broken")); }

  bool at_once = false;
  SequencePlace place_;
  std::stop_token stop_;
  const std::byte* bytes_ = nullptr;

 private:
  float value_ = 0;
  Done done_;
  std::vector<TensorSpec> inputs_ = {Spec("x")}, outputs_ = {Spec("y")};
};

class Lender final : public ModelLender {
 public:
  StatusOr<LentModel> Lend(const std::string&, const std::string& name,
                           const std::string&) override {
    if (missing == name) return NotFound("the model '" + name + "' is gone");
    return LentModel{&models[name], nullptr, 0};
  }
  void Forget(const std::string&) override {}
  std::map<std::string, FakeModel> models;
  std::string missing;
};

class EnsembleTest : public testing::Test {
 protected:
  // model(tensor) → tensor
  void Step(const std::string& model, const std::string& from,
            const std::string& to, const std::string& when = {}) {
    settings_.steps.push_back({.model = model,
                               .input_map = {{"x", from}},
                               .output_map = {{"y", to}}});
    if (!when.empty())
      settings_.steps.back().when = *config::ParseCondition(when);
  }
  void Build() {
    std::vector<StepPorts> ports(settings_.steps.size(),
                                 {{Spec("x")}, {Spec("y")}});
    auto plan = EnsemblePlan::Create("e", settings_, ports);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    handler_ = std::make_unique<EnsembleHandler>(
        EnsembleParts{.model = "e", .lender = &lender_}, *std::move(plan));
  }
  void Ask(float value, std::stop_token stop = {}, SequencePlace place = {}) {
    TensorRequest request;
    Tensor a = Tensor::Make(DType::kF32, {1});
    *a.data<float>() = value;
    bytes_ = a.bytes();
    request.inputs.push_back({"a", std::move(a)});
    StartInSequence(
        handler_.get(), std::move(place), std::move(request),
        [this](StatusOr<TensorResponse> answer) {
          ++num_endings_;
          answer_.emplace(std::move(answer));
        },
        std::move(stop));
  }
  std::map<std::string, float> Values() {
    std::map<std::string, float> values;
    EXPECT_TRUE(answer_.has_value() && answer_->ok());
    for (NamedTensor& output : (*answer_)->outputs) {
      values[output.name] = *output.tensor.data<float>();
    }
    return values;
  }
  FakeModel& Model(const std::string& name) { return lender_.models[name]; }

  EnsembleSettings settings_;
  Lender lender_;
  std::unique_ptr<EnsembleHandler> handler_;
  int num_endings_ = 0;
  std::optional<StatusOr<TensorResponse>> answer_;
  const std::byte* bytes_ = nullptr;
};

TEST_F(EnsembleTest, AStepStartsWhenItsTensorsAreThere) {
  Step("first", "a", "b");
  Step("left", "b", "c");
  Step("right", "b", "d");
  Build();
  Ask(1);
  EXPECT_TRUE(Model("first").started());
  EXPECT_EQ(Model("first").bytes_, bytes_) << "a copy was made";
  EXPECT_FALSE(Model("left").started());
  Model("first").Answer();
  EXPECT_EQ(Model("left").bytes_, Model("right").bytes_) << "a copy was made";
  Model("right").Answer();
  EXPECT_EQ(num_endings_, 0);
  Model("left").Answer();
  EXPECT_EQ(Values(), (std::map<std::string, float>{{"c", 3}, {"d", 3}}));
  EXPECT_EQ(handler_->counts().num_success, 1);
  EXPECT_EQ(handler_->in_flight(), 0);
}

TEST_F(EnsembleTest, AFailureEndsTheRequestOnceAndStopsTheOthers) {
  Step("left", "a", "c");
  Step("right", "a", "d");
  Build();
  Ask(1);
  Model("left").Fail();
  EXPECT_EQ(num_endings_, 1);
  EXPECT_EQ(answer_->status().message(),
            "in ensemble 'e', step 1 (model 'left'): broken");
  EXPECT_TRUE(Model("right").stop_.stop_requested());
  Model("right").Answer();
  EXPECT_EQ(num_endings_, 1);
  EXPECT_EQ(handler_->counts().num_failure, 1);
}

TEST_F(EnsembleTest, AClientThatLeavesStopsTheSteps) {
  Step("first", "a", "b");
  Build();
  std::stop_source client;
  Ask(1, client.get_token());
  EXPECT_FALSE(Model("first").stop_.stop_requested());
  client.request_stop();
  EXPECT_TRUE(Model("first").stop_.stop_requested());
  Model("first").Fail();
  EXPECT_EQ(num_endings_, 1);
}

TEST_F(EnsembleTest, WhatIsLeftOutLeavesOutWhatNeedsIt) {
  for (const char* name : {"test", "yes", "no", "more"}) {
    Model(name).at_once = true;
  }
  Step("test", "a", "t");
  Step("yes", "a", "r", "t > 5");
  Step("no", "t", "r", "t <= 5");
  Step("more", "r", "m", "t > 5");
  settings_.outputs = {{.name = "r"}, {.name = "m"}};
  Build();
  Ask(9);
  EXPECT_EQ(Values(), (std::map<std::string, float>{{"r", 10}, {"m", 11}}));
  Ask(1);
  EXPECT_EQ(Values(), (std::map<std::string, float>{{"r", 3}}));
}

// Of every type that has numbers, whichever element compares so.
template <typename T>
Tensor OfTwo(DType dtype, T first, T second) {
  Tensor tensor = Tensor::Make(dtype, {2});
  tensor.data<T>()[0] = first;
  tensor.data<T>()[1] = second;
  return tensor;
}

TEST(Condition, HoldsOfHalfFloatsToo) {
  using Compare = config::StepCondition::Compare;
  const Tensor tensors[] = {
      OfTwo<uint16_t>(DType::kF16, models::FloatToHalf(-1),
                      models::FloatToHalf(0.75F)),
      OfTwo<uint16_t>(DType::kBF16, models::FloatToBFloat16(-1),
                      models::FloatToBFloat16(0.75F)),
      OfTwo<float>(DType::kF32, -1, 0.75F)};
  for (const Tensor& tensor : tensors) {
    SCOPED_TRACE(DTypeName(tensor.dtype()));
    EXPECT_TRUE(AnyCompares(tensor, Compare::kGreater, 0.5));
    EXPECT_TRUE(AnyCompares(tensor, Compare::kEqual, 0.75));
    EXPECT_TRUE(AnyCompares(tensor, Compare::kLess, 0));
    EXPECT_FALSE(AnyCompares(tensor, Compare::kGreater, 1));
    EXPECT_FALSE(AnyCompares(tensor, Compare::kLess, -1));
  }
}

TEST_F(EnsembleTest, EachStepIsToldThePlaceInTheSequence) {
  Model("first").at_once = true;
  Step("first", "a", "b");
  Step("second", "b", "c");
  Build();
  Ask(1, {}, {.id = uint64_t{7}, .start = true});
  for (const char* name : {"first", "second"}) {
    EXPECT_EQ(Model(name).place_.id, SequenceId(uint64_t{7})) << name;
    EXPECT_TRUE(Model(name).place_.start) << name;
    EXPECT_FALSE(Model(name).place_.end) << name;
  }
  Ask(1, {}, {.id = "text", .end = true});
  EXPECT_EQ(Model("second").place_.id, SequenceId("text"));
  EXPECT_TRUE(Model("second").place_.end);
}

TEST_F(EnsembleTest, AModelThatIsGoneIsNamed) {
  Step("first", "a", "b");
  Build();
  lender_.missing = "first";
  Ask(1);
  EXPECT_EQ(answer_->status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(answer_->status().message(),
            "the ensemble 'e' is not ready: the model 'first' is gone");
  EXPECT_FALSE(handler_->Ready().ok());
}

// A model with a task: tensors x → y, or pairs of texts → scores.
StatusOr<EnsemblePlan> PlanOfPairs(std::map<std::string, std::string> inputs,
                                   const std::string& output) {
  const auto bytes = [](const std::string& name) {
    return TensorSpec{.name = name,
                      .dtype = models::kString,
                      .dims = {},
                      .rank_known = false,
                      .text = {}};
  };
  StepPorts ports{{Spec("x")}, {Spec("y")}};
  ports.task_forms = {{{bytes("")}, {Spec("scores")}},
                      {{bytes("query"), bytes("")}, {Spec("scores")}}};
  EnsembleSettings settings;
  settings.steps.push_back({.model = "m",
                            .input_map = std::move(inputs),
                            .output_map = {{output, "out"}}});
  return EnsemblePlan::Create("e", settings, {ports});
}

TEST(EnsemblePlanOfTasks, AnInputOfAnyNameAsksTheTask) {
  const auto plan = PlanOfPairs({{"whatever", "t"}}, "scores");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->input_specs[0].name, "t");
  EXPECT_EQ(plan->input_specs[0].dtype, models::kString);
  EXPECT_FALSE(plan->input_specs[0].rank_known);
}

TEST(EnsemblePlanOfTasks, NamesThatAreFixedStandBesideAnyOther) {
  for (const char* name : {"a", "z"}) {  // before and behind "query"
    const auto plan = PlanOfPairs({{"query", "q"}, {name, "t"}}, "scores");
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->input_specs.size(), 2u);
  }
}

TEST(EnsemblePlanOfTasks, TheTensorsOfTheModelComeFirst) {
  const auto plan = PlanOfPairs({{"x", "t"}}, "y");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->input_specs[0].dtype, DType::kF32);
  EXPECT_NE(PlanOfPairs({{"x", "t"}}, "scores")
                .status()
                .message()
                .find("it gives 'y'"),
            std::string::npos);
}

TEST(EnsemblePlanOfTasks, WhatFitsNoFormNamesThem) {
  const auto plan = PlanOfPairs({{"a", "q"}, {"b", "t"}}, "scores");
  EXPECT_NE(plan.status().message().find(
                "it takes 'x', or as BYTES one input of any name, or as BYTES "
                "'query' and one input of any name"),
            std::string::npos)
      << plan.status().ToString();
}

}  // namespace
}  // namespace millrace::handlers
