// ModelInfer over loopback: one request, one answer, every way it can end.
#include <gmock/gmock.h>

#include <future>
#include <latch>
#include <string>

#include "tests/unit/server/grpc/fixture.h"

namespace millrace::server::testing {
namespace {

using ::testing::HasSubstr;

class ModelInferTest : public GrpcTest {
 protected:
  void SetUp() override {
    GrpcTest::SetUp();
    Start();
  }

  std::future<::grpc::Status> Call(inference::ModelInferRequest request) {
    return std::async(std::launch::async, [this, request] {
      return stub_->ModelInfer(&context_, request, &response_);
    });
  }

  ::grpc::ClientContext context_;
  inference::ModelInferResponse response_;
};

TEST_F(ModelInferTest, AnswersTheWholeText) {
  auto call = Call(TextRequest("Hi", "request-7"));
  const Session session = handler_->Take("Hi");
  session.Say("Hello ");
  session.Say("world");
  session.End(handlers::FinishReason::kLength, 5, 2);
  ASSERT_TRUE(call.get().ok());
  EXPECT_EQ(TextOf(response_), "Hello world");
  EXPECT_EQ(response_.id(), "request-7");
  EXPECT_EQ(response_.model_name(), "tiny");
  EXPECT_EQ(response_.model_version(), "1");
  EXPECT_EQ(response_.raw_output_contents_size(), 1);
  EXPECT_TRUE(IsFinal(response_));
  EXPECT_EQ(response_.parameters().at("finish_reason").string_param(),
            "length");
  EXPECT_EQ(response_.parameters().at("prompt_tokens").int64_param(), 5);
  EXPECT_EQ(response_.parameters().at("completion_tokens").int64_param(), 2);
}

TEST_F(ModelInferTest, MemoryThatIsNotThereEndsTheRequestAlone) {
  const auto status =
      Call(TextRequest(std::string(PlayedHandler::kTooMuch))).get();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("has no memory for this"));
}

TEST_F(ModelInferTest, StreamNeedsTheStreamingCall) {
  const auto status = Call(TextRequest("Hi", "", true)).get();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ModelStreamInfer"));
}

TEST_F(ModelInferTest, UnknownModelIsNotFound) {
  auto request = TextRequest("Hi");
  request.set_model_name("huge");
  const auto status = Call(request).get();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("huge"));
}

TEST_F(ModelInferTest, UnknownVersionIsNotFound) {
  auto request = TextRequest("Hi");
  request.set_model_version("9");
  const auto status = Call(request).get();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("'9'"));
}

TEST_F(ModelInferTest, FieldOutOfRangeIsNamed) {
  auto request = TextRequest("Hi");
  AddInput(request, "sampling_parameters", "BYTES",
           RawBytes(R"({"temperature": 9})"));
  const auto status = Call(request).get();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("temperature"));
}

TEST_F(ModelInferTest, FailureOfTheHandlerKeepsCodeAndField) {
  auto call = Call(TextRequest("Hi"));
  handler_->Take("Hi").Fail(
      ResourceExhausted("no place among 64").At("max_num_seqs"));
  const auto status = call.get();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "no place among 64 (field 'max_num_seqs')");
}

TEST_F(ModelInferTest, CancelReachesTheHandler) {
  auto call = Call(TextRequest("Hi"));
  const Session session = handler_->Take("Hi");
  std::promise<void> stopped;
  std::stop_callback on_stop(session.stop, [&] { stopped.set_value(); });
  context_.TryCancel();
  stopped.get_future().wait();
  session.Fail(Cancelled("stopped"));
  EXPECT_EQ(call.get().error_code(), ::grpc::StatusCode::CANCELLED);
}

TEST_F(ModelInferTest, DeadlineOfTheCallIsTheRequests) {
  const auto before = std::chrono::steady_clock::now();
  context_.set_deadline(std::chrono::system_clock::now() +
                        std::chrono::seconds(100));
  auto call = Call(TextRequest("Hi"));
  const Session session = handler_->Take("Hi");
  EXPECT_GT(session.request.deadline, before + std::chrono::seconds(60));
  EXPECT_LT(session.request.deadline, before + std::chrono::seconds(140));
  session.End();
  EXPECT_TRUE(call.get().ok());
}

TEST_F(ModelInferTest, WithoutDeadlineThereIsNone) {
  auto call = Call(TextRequest("Hi"));
  const Session session = handler_->Take("Hi");
  EXPECT_EQ(session.request.deadline, kNever);
  session.End();
  EXPECT_TRUE(call.get().ok());
}

TEST_F(ModelInferTest, TimeoutParameterShortensTheDeadline) {
  auto request = TextRequest("Hi");
  (*request.mutable_parameters())["timeout"].set_int64_param(50'000'000);
  const auto before = std::chrono::steady_clock::now();
  auto call = Call(request);
  const Session session = handler_->Take("Hi");
  EXPECT_LT(session.request.deadline, before + std::chrono::seconds(90));
  session.End();
  EXPECT_TRUE(call.get().ok());
}

TEST_F(ModelInferTest, RequestIdIsEchoed) {
  context_.AddMetadata("x-request-id", "abc-1");
  auto call = Call(TextRequest("Hi"));
  const Session session = handler_->Take("Hi");
  EXPECT_EQ(session.request.trace->request_id, "abc-1");
  session.End();
  ASSERT_TRUE(call.get().ok());
  const auto& metadata = context_.GetServerInitialMetadata();
  ASSERT_EQ(metadata.count("x-request-id"), 1u);
  EXPECT_EQ(metadata.find("x-request-id")->second, "abc-1");
}

TEST_F(ModelInferTest, RequestIdIsMadeWhenTheClientsIsNoPlainWord) {
  context_.AddMetadata("x-request-id", "two words");
  auto call = Call(TextRequest("Hi"));
  const Session session = handler_->Take("Hi");
  EXPECT_THAT(session.request.trace->request_id, HasSubstr("req-"));
  session.End();
  EXPECT_TRUE(call.get().ok());
}

TEST_F(ModelInferTest, EveryEndIsCountedByRouteAndOutcome) {
  auto call = Call(TextRequest("Hi"));
  handler_->Take("Hi").End();
  EXPECT_TRUE(call.get().ok());
  ::grpc::ClientContext second;
  inference::ModelInferRequest empty;
  empty.set_model_name("tiny");
  EXPECT_FALSE(stub_->ModelInfer(&second, empty, &response_).ok());
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("millrace_requests_total{outcome=\"ok\","
                              "route=\"grpc/ModelInfer\"} 1"));
  EXPECT_THAT(text, HasSubstr("outcome=\"client_error\","
                              "route=\"grpc/ModelInfer\"} 1"));
}

TEST_F(ModelInferTest, NoHandleIsKeptAfterTheEnd) {
  auto call = Call(TextRequest("Hi"));
  const Session session = handler_->Take("Hi");
  EXPECT_EQ(repository_.List()[0]->gate().in_flight(), 1);
  session.End();
  EXPECT_TRUE(call.get().ok());
  EXPECT_TRUE(repository_.Drain(Soon()));
}

// Two tasks hold both threads of the pool, 64 more fill its queue. A short
// request would not pass through it.
TEST_F(ModelInferTest, FullPoolIsResourceExhausted) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::latch held(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(pool_.TryPost([&held, released] {
      held.count_down();
      released.wait();
    }));
  }
  held.wait();
  while (pool_.TryPost([] {})) {
  }
  const auto status = Call(TextRequest(std::string(10'000, 'x'))).get();
  release.set_value();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace millrace::server::testing
