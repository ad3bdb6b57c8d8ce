// Token ids of requests to a decoder that makes vectors, over an engine that is
// faked.
#include "handlers/texts/decoder_tensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using std::chrono::hours;

// Gives each text the vector {1, 2}.
class VectorEngine final : public scheduler::EmbeddingEngine {
 public:
  StatusOr<scheduler::Reservation> Reserve(Clock::Time deadline) override {
    reserved = deadline;
    return scheduler::Reservation([] {});
  }
  Status Submit(scheduler::Reservation,
                scheduler::EmbeddingTask task) override {
    submitted = task.deadline;
    task.done(std::vector(task.texts.size(), std::vector{1.0f, 2.0f}));
    return OkStatus();
  }
  bool Drain(std::chrono::steady_clock::time_point) override { return true; }
  int32_t max_tokens() const override { return 8; }
  int32_t size() const override { return 2; }
  int32_t vocab_size() const override { return 100; }

  Clock::Time reserved = kNever;
  Clock::Time submitted = kNever;
};

class DecoderTensorsTest : public testing::Test {
 protected:
  StatusOr<TensorResponse> Ask(std::optional<std::chrono::microseconds> timeout,
                               Clock::Time deadline) {
    TensorRequest request;
    Tensor ids = Tensor::Make(DType::kI64, {1, 2});
    ids.data<int64_t>()[0] = 5;
    ids.data<int64_t>()[1] = 6;
    request.inputs.push_back({"input_ids", std::move(ids)});
    request.timeout = timeout;
    request.deadline = deadline;
    const auto answer =
        std::make_shared<std::promise<StatusOr<TensorResponse>>>();
    tensors_->Start(std::move(request),
                    [answer](StatusOr<TensorResponse> response) {
                      answer->set_value(std::move(response));
                    },
                    {});
    return answer->get_future().get();
  }

  VectorEngine engine_;
  Pool pool_{1, 8, {}};
  const std::unique_ptr<TensorHandler> tensors_ =
      MakeDecoderTensors({.model = "m", .engine = &engine_, .pool = &pool_});
};

TEST_F(DecoderTensorsTest, ATimeoutEndsTheRequestAsADeadlineDoes) {
  const Clock::Time before = Clock::Real().Now();
  const Clock::Time late = before + hours(9);
  ASSERT_TRUE(Ask(hours(1), late).ok());
  const Clock::Time after = Clock::Real().Now();
  for (const Clock::Time seen : {engine_.reserved, engine_.submitted}) {
    EXPECT_GE(seen, before + hours(1));
    EXPECT_LE(seen, after + hours(1));
  }
  ASSERT_TRUE(Ask(hours(10), late).ok());
  EXPECT_EQ(engine_.reserved, late);
  EXPECT_EQ(engine_.submitted, late);
  ASSERT_TRUE(Ask({}, kNever).ok());
  EXPECT_EQ(engine_.submitted, kNever);
}

}  // namespace
}  // namespace millrace::handlers
