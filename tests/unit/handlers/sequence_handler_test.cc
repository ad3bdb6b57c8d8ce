// A running sum whose state is kept for each sequence, and how a sequence ends
// whose client is gone.
#include "handlers/sequences/sequence_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "handlers/sequences/sequence_place.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using models::TensorSpec;

TensorSpec Number(const char* name) {
  return {.name = name, .dtype = DType::kI32, .dims = {1}, .text = "INT32 [1]"};
}

Tensor Of(int32_t value) {
  Tensor tensor = Tensor::Make(DType::kI32, {1});
  *tensor.data<int32_t>() = value;
  return tensor;
}

// y = new = x + old, at once or when the test says so.
class FakeSum final : public TensorHandler {
 public:
  void Start(TensorRequest request, Done done, std::stop_token) override {
    short_done.push_back(request.short_done);
    deadlines.push_back(request.deadline);
    timeouts.push_back(request.timeout);
    most_nested = std::max(most_nested, ++nested);
    int32_t sum = 0;
    for (const NamedTensor& input : request.inputs) {
      sum += *input.tensor.data<int32_t>();
    }
    waiting.emplace_back(std::move(done), sum);
    if (at_once) Answer();
    --nested;
  }
  void Answer() {
    auto [done, sum] = std::move(waiting.front());
    waiting.pop_front();
    TensorResponse response;
    response.outputs.push_back({"y", Of(sum)});
    response.outputs.push_back({"new", Of(sum)});
    done(std::move(response));
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

  bool at_once = true;
  std::vector<bool> short_done;  // of each request
  std::vector<Clock::Time> deadlines;
  std::vector<std::optional<std::chrono::microseconds>> timeouts;
  int nested = 0;  // starts under way
  int most_nested = 0;
  std::deque<std::pair<Done, int32_t>> waiting;

 private:
  const std::vector<TensorSpec> inputs_ = {Number("x"), Number("old")};
  const std::vector<TensorSpec> outputs_ = {Number("y"), Number("new")};
};

class SequenceHandlerTest : public testing::Test {
 protected:
  SequenceHandlerTest() { Make(/*timeout_is_of_queue=*/false); }

  void Make(
      bool timeout_is_of_queue,
      int64_t max_state_bytes = config::SequenceSettings::kMaxStateBytes) {
    auto model = std::make_unique<FakeSum>();
    model_ = model.get();
    auto settings = std::make_shared<config::SequenceSettings>();
    settings->max_idle_us = 3'600'000'000;
    settings->max_sequences = 2;
    settings->max_state_bytes = max_state_bytes;
    settings->states = {{.input = "old", .output = "new"}};
    auto made = MakeSequenceHandler(std::move(model),
                                    {.model = "sum",
                                     .folder = "",
                                     .settings = settings,
                                     .timeout_is_of_queue = timeout_is_of_queue,
                                     .clock = &clock_});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    handler_ = *std::move(made);
  }

  SequencedHandler& handler() {
    return dynamic_cast<SequencedHandler&>(*handler_);
  }

  // "7", or the error.
  void Ask(uint64_t id, int32_t x, bool start = false, bool end = false,
           std::optional<std::chrono::microseconds> timeout = {}) {
    TensorRequest request;
    request.timeout = timeout;
    request.inputs.push_back({"x", Of(x)});
    request.short_done = true;
    handler().StartAt(
        {.id = id, .start = start, .end = end}, std::move(request),
        [this](StatusOr<TensorResponse> response) {
          answers_.push_back(
              response.ok()
                  ? std::to_string(*response->outputs[0].tensor.data<int32_t>())
                  : std::string(response.status().message()));
        },
        {});
  }
  std::string Last() { return answers_.empty() ? "none" : answers_.back(); }
  // Whether the next request must begin a new one.
  bool IsGone(uint64_t id) {
    Ask(id, 0);
    return Last().find("START") != std::string::npos;
  }

  FakeClock clock_;
  FakeSum* model_ = nullptr;
  std::unique_ptr<TensorHandler> handler_;
  std::vector<std::string> answers_;
};

TEST_F(SequenceHandlerTest, AClientThatIsGoneLeavesItsPlace) {
  Ask(1, 3, true);
  Ask(2, 5, true);
  Ask(1, 4);
  EXPECT_EQ(Last(), "7");
  Ask(3, 1, true);
  EXPECT_NE(Last().find("max_candidate_sequences"), std::string::npos);
  handler().EndAt(uint64_t{1});
  EXPECT_TRUE(IsGone(1));
  Ask(3, 1, true);
  EXPECT_EQ(Last(), "1");
  handler().EndAt(uint64_t{99});  // there is none
  Ask(2, 1);
  EXPECT_EQ(Last(), "6");
}

TEST_F(SequenceHandlerTest, WhatRunsAndWaitsComesBeforeTheEnd) {
  model_->at_once = false;
  Ask(1, 3, true);
  Ask(1, 4);
  handler().EndAt(uint64_t{1});
  EXPECT_EQ(Last(), "none");
  model_->Answer();
  EXPECT_EQ(Last(), "3");
  model_->Answer();
  EXPECT_EQ(Last(), "7");
  EXPECT_TRUE(IsGone(1));
}

// Of 4 bytes each, in two sequences; those that run count as states.
TEST_F(SequenceHandlerTest, TheBytesOfWhatWaitsAreBounded) {
  Make(/*timeout_is_of_queue=*/false, /*max_state_bytes=*/16);
  model_->at_once = false;
  for (const uint64_t id : {1, 2}) {
    Ask(id, 1, true);
    Ask(id, 2);
    Ask(id, 3);
  }
  EXPECT_EQ(Last(), "none");
  Ask(1, 4);
  EXPECT_NE(Last().find("hold 16 bytes and may hold 16"), std::string::npos)
      << Last();
  model_->Answer();
  EXPECT_EQ(Last(), "1");
  Ask(1, 4);  // there is room again
  for (int i = 0; i < 6; ++i) model_->Answer();
  EXPECT_THAT(answers_, testing::ElementsAre(testing::_, "1", "1", "3", "3",
                                             "6", "6", "10"));
}

// Its time behind others of its sequence is part of it.
TEST_F(SequenceHandlerTest, ATimeoutBeginsWhenTheRequestComes) {
  using std::chrono::milliseconds;
  for (const bool of_queue : {false, true}) {
    Make(of_queue);
    model_->at_once = false;
    const Clock::Time came = clock_.Now();
    Ask(1, 3, true);
    Ask(1, 4, false, false, milliseconds(10));
    clock_.Advance(milliseconds(7));
    model_->Answer();
    ASSERT_EQ(model_->deadlines.size(), 2U);
    EXPECT_EQ(model_->deadlines[0], kNever);
    EXPECT_EQ(model_->deadlines[1],
              of_queue ? kNever : came + milliseconds(10));
    EXPECT_EQ(model_->timeouts[1].has_value(), of_queue);
    model_->Answer();
  }
}

// Else a model that computes a request on the thread that brings it would be
// asked for all that wait from within the first one's ending.
TEST_F(SequenceHandlerTest, WhatWaitsIsNotStartedWithinAnEnding) {
  model_->at_once = false;
  for (int32_t x = 1; x <= 5; ++x) Ask(1, x, x == 1);
  model_->at_once = true;
  model_->Answer();
  EXPECT_EQ(answers_, (std::vector<std::string>{"1", "3", "6", "10", "15"}));
  EXPECT_EQ(model_->most_nested, 1);
  EXPECT_EQ(model_->short_done,
            (std::vector<bool>{true, false, false, false, false}));
}

TEST_F(SequenceHandlerTest, ANewStartStaysBehindAnEnd) {
  model_->at_once = false;
  Ask(1, 3, true);
  handler().EndAt(uint64_t{1});
  Ask(1, 10, true);
  model_->Answer();
  model_->Answer();
  EXPECT_EQ(Last(), "10");
  model_->at_once = true;
  Ask(1, 1);
  EXPECT_EQ(Last(), "11");
}

}  // namespace
}  // namespace millrace::handlers
