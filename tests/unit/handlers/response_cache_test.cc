#include "handlers/response_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace millrace::handlers {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;

// Answers with each input's first value plus 1; counts what it computes.
class CountingHandler final : public TensorHandler {
 public:
  explicit CountingHandler(int* num_computed) : num_computed_(num_computed) {}
  void Fill() { full_ = true; }
  void Start(TensorRequest request, Done done, std::stop_token) override {
    if (full_) return done(HasPlace());
    ++*num_computed_;
    const float first = request.inputs.front().tensor.data<float>()[0];
    if (first < 0) return done(InvalidArgument("below 0"));
    TensorResponse response;
    response.outputs.push_back({"y", Tensor::Scalar(first + 1)});
    done(std::move(response));
  }
  Status HasPlace() const override {
    return full_ ? ResourceExhausted("the queue is full") : OkStatus();
  }
  const std::vector<models::TensorSpec>& inputs() const override {
    return specs_;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return specs_;
  }

 private:
  int* const num_computed_;
  bool full_ = false;
  const std::vector<models::TensorSpec> specs_;
};

TensorRequest Request(std::vector<float> values, std::string name = "x",
                      std::vector<std::string> outputs = {}) {
  TensorRequest request;
  const Shape shape = {static_cast<int64_t>(values.size())};
  request.inputs.push_back(
      {std::move(name), Tensor::From<float>(DType::kF32, shape,
                                            std::span<const float>(values))});
  request.outputs = std::move(outputs);
  return request;
}

class ResponseCacheTest : public testing::Test {
 protected:
  StatusOr<float> Ask(TensorRequest request) {
    StatusOr<float> value = Internal("no answer");
    handler_->Start(
        std::move(request),
        [&](StatusOr<TensorResponse> response) {
          value = response.ok()
                      ? StatusOr<float>(
                            response->outputs[0].tensor.data<float>()[0])
                      : StatusOr<float>(response.status());
        },
        {});
    return value;
  }
  // Room for two answers of one number.
  void Make(int64_t max_bytes) {
    cache_ = std::make_unique<ResponseCache>(max_bytes, "m", nullptr);
    auto counting = std::make_unique<CountingHandler>(&num_computed_);
    counting_ = counting.get();
    handler_ = MakeCachingHandler(std::move(counting), cache_.get());
  }

  int num_computed_ = 0;
  std::unique_ptr<ResponseCache> cache_;
  std::unique_ptr<TensorHandler> handler_;
  CountingHandler* counting_ = nullptr;  // within handler_
};

TEST_F(ResponseCacheTest, AnswersFromTheCacheNeedNoPlace) {
  Make(1 << 20);
  ASSERT_TRUE(Ask(Request({1})).ok());
  counting_->Fill();
  EXPECT_TRUE(handler_->HasPlace().ok());
  EXPECT_TRUE(Ask(Request({1})).ok());
  EXPECT_EQ(Ask(Request({2})).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(ResponseCacheTest, TheSameBytesAreComputedOnce) {
  Make(1 << 20);
  EXPECT_EQ(*Ask(Request({1, 2})), 2);
  EXPECT_EQ(*Ask(Request({1, 2})), 2);
  EXPECT_EQ(*Ask(Request({1, 2})), 2);
  EXPECT_EQ(num_computed_, 1);
  EXPECT_EQ(cache_->counts().hits, 2);
  EXPECT_EQ(cache_->counts().misses, 1);
}

TEST_F(ResponseCacheTest, WhateverDiffersIsAnotherRequest) {
  Make(1 << 20);
  std::vector<TensorRequest> requests;
  requests.push_back(Request({1, 2}));
  requests.push_back(Request({1, 3}));
  requests.push_back(Request({1, 2, 0}));
  requests.push_back(Request({1, 2}, "z"));
  requests.push_back(Request({1, 2}, "x", {"y"}));
  requests.push_back(Request({1, 2}, "x", {"y", "z"}));
  requests.push_back(Request({1, 2}));
  requests.back().inputs[0].tensor =
      requests.back().inputs[0].tensor.Reshaped({2, 1});
  for (TensorRequest& request : requests) {
    ASSERT_TRUE(Ask(std::move(request)).ok());
  }
  EXPECT_EQ(num_computed_, 7);
  EXPECT_EQ(cache_->counts().hits, 0);
}

TEST_F(ResponseCacheTest, DeadlineAndPriorityDoNotMatter) {
  Make(1 << 20);
  ASSERT_TRUE(Ask(Request({1})).ok());
  TensorRequest later = Request({1});
  later.priority = 7;
  later.deadline = Clock::Time(Clock::Duration(1));
  ASSERT_TRUE(Ask(std::move(later)).ok());
  EXPECT_EQ(num_computed_, 1);
}

TEST_F(ResponseCacheTest, FailuresAreNotKept) {
  Make(1 << 20);
  EXPECT_FALSE(Ask(Request({-1})).ok());
  EXPECT_FALSE(Ask(Request({-1})).ok());
  EXPECT_EQ(num_computed_, 2);
  EXPECT_EQ(cache_->bytes(), 0);
}

TEST_F(ResponseCacheTest, TheOneNotAskedForTheLongestGoesFirst) {
  Make(1 << 20);
  ASSERT_TRUE(Ask(Request({1})).ok());
  const int64_t one = cache_->bytes();
  Make(2 * one);
  num_computed_ = 0;
  for (const float value : {1.f, 2.f, 1.f, 3.f}) {  // 3 takes the place of 2
    ASSERT_TRUE(Ask(Request({value})).ok());
  }
  EXPECT_EQ(num_computed_, 3);
  EXPECT_EQ(cache_->bytes(), 2 * one);
  ASSERT_TRUE(Ask(Request({1})).ok());
  EXPECT_EQ(num_computed_, 3);
  ASSERT_TRUE(Ask(Request({2})).ok());
  EXPECT_EQ(num_computed_, 4);
}

TEST_F(ResponseCacheTest, AnAnswerLargerThanTheCacheIsNotKept) {
  Make(100);
  ASSERT_TRUE(Ask(Request({1})).ok());
  ASSERT_TRUE(Ask(Request({1})).ok());
  EXPECT_EQ(num_computed_, 2);
  EXPECT_EQ(cache_->bytes(), 0);
}

TEST_F(ResponseCacheTest, AnAnswerOutlivesItsPlace) {
  Make(1 << 20);
  ASSERT_TRUE(Ask(Request({1})).ok());
  auto kept = cache_->Find(ResponseCache::KeyOf(Request({1})));
  ASSERT_TRUE(kept.has_value());
  handler_.reset();
  cache_.reset();
  EXPECT_EQ(kept->outputs[0].tensor.data<float>()[0], 2);
}

}  // namespace
}  // namespace millrace::handlers
