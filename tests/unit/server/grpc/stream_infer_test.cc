// ModelStreamInfer over loopback: several requests on one stream.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/graph_servable.h"
#include "tests/support/test_graphs.h"
#include "tests/unit/server/grpc/fixture.h"

namespace millrace::server::testing {
namespace {

using ::testing::HasSubstr;

class StreamInferTest : public GrpcTest {
 protected:
  void SetUp() override {
    GrpcTest::SetUp();
    repository_.Add(
        support::GraphServable("sums", support::SumGraph(), &pool_));
    Start();
    stream_ = stub_->ModelStreamInfer(&context_);
  }
  void TearDown() override {
    context_.TryCancel();
    stream_.reset();
    EXPECT_TRUE(repository_.Drain(std::chrono::steady_clock::now() +
                                  std::chrono::seconds(20)));
    GrpcTest::TearDown();
  }

  void Send(const inference::ModelInferRequest& request) {
    ASSERT_TRUE(stream_->Write(request));
  }
  inference::ModelStreamInferResponse Next() {
    inference::ModelStreamInferResponse response;
    EXPECT_TRUE(stream_->Read(&response)) << "the stream ended";
    return response;
  }
  // The next answer, which is a chunk of this request and not its last.
  void ExpectChunk(const std::string& id, const std::string& text) {
    const auto next = Next();
    EXPECT_EQ(next.error_message(), "");
    EXPECT_EQ(next.infer_response().id(), id);
    EXPECT_EQ(TextOf(next.infer_response()), text);
    EXPECT_FALSE(IsFinal(next.infer_response()));
  }
  ::grpc::Status CloseAndFinish() {
    stream_->WritesDone();
    inference::ModelStreamInferResponse response;
    EXPECT_FALSE(stream_->Read(&response)) << response.ShortDebugString();
    return stream_->Finish();
  }

  ::grpc::ClientContext context_;
  std::unique_ptr<::grpc::ClientReaderWriter<
      inference::ModelInferRequest, inference::ModelStreamInferResponse>>
      stream_;
};

TEST_F(StreamInferTest, ChunksThenAFinalAnswer) {
  Send(TextRequest("Hi", "a", true));
  const Session session = handler_->Take("Hi");
  session.Say("one ");
  ExpectChunk("a", "one ");
  session.Say("two");
  ExpectChunk("a", "two");
  session.End(handlers::FinishReason::kStop, 4, 2);
  const auto last = Next().infer_response();
  EXPECT_TRUE(IsFinal(last));
  EXPECT_EQ(TextOf(last), "");
  EXPECT_EQ(last.parameters().at("finish_reason").string_param(), "stop");
  EXPECT_EQ(last.parameters().at("completion_tokens").int64_param(), 2);
  EXPECT_TRUE(CloseAndFinish().ok());
}

inference::ModelInferRequest Sums(const std::string& id, float a) {
  inference::ModelInferRequest request;
  request.set_model_name("sums");
  request.set_id(id);
  for (const auto& [name, value] : {std::pair{"a", a}, std::pair{"b", 1.f}}) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->set_datatype("FP32");
    input->add_shape(1);
    input->add_shape(2);
    input->mutable_contents()->add_fp32_contents(value);
    input->mutable_contents()->add_fp32_contents(value);
  }
  return request;
}

TEST_F(StreamInferTest, GraphsAnswerInTheOrderOfTheRequests) {
  constexpr int kRequests = 8;  // as many as the model's queue holds
  for (int i = 0; i < kRequests; ++i) {
    auto request = Sums(std::to_string(i), static_cast<float>(i));
    if (i == 3) request.mutable_inputs()->RemoveLast();
    if (i == 5) request.set_model_name("nobody");
    Send(request);
  }
  for (int i = 0; i < kRequests; ++i) {
    const auto next = Next();
    const auto& answer = next.infer_response();
    EXPECT_EQ(answer.id(), std::to_string(i));
    EXPECT_EQ(next.error_message().empty(), i != 3 && i != 5) << i;
    if (!next.error_message().empty()) continue;
    EXPECT_TRUE(IsFinal(answer));
    ASSERT_GE(answer.outputs_size(), 1);
    EXPECT_EQ(answer.outputs(0).contents().fp32_contents(0),
              static_cast<float>(i) + 1);
  }
  EXPECT_TRUE(CloseAndFinish().ok());
}

TEST_F(StreamInferTest, AClientThatReadsNothingIsAnsweredLater) {
  constexpr int kRequests = 5000;  // more than may be open
  std::thread writer([&] {
    for (int i = 0; i < kRequests; ++i) {
      auto request = Sums(std::to_string(i), 1);
      request.set_model_name("nobody");
      ASSERT_TRUE(stream_->Write(request));
    }
    stream_->WritesDone();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(Next().infer_response().id(), std::to_string(i));
  }
  writer.join();
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream_->Read(&response));
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(StreamInferTest, GraphsDoNotWaitForText) {
  Send(TextRequest("Hi", "text", true));
  const Session session = handler_->Take("Hi");
  Send(Sums("sum", 1));
  EXPECT_EQ(Next().infer_response().id(), "sum");
  session.End();
  EXPECT_EQ(Next().infer_response().id(), "text");
  EXPECT_TRUE(CloseAndFinish().ok());
}

TEST_F(StreamInferTest, EmptyFinalAnswerHasNoTensors) {
  auto request = TextRequest("Hi", "a", true);
  (*request.mutable_parameters())["triton_enable_empty_final_response"]
      .set_bool_param(true);
  Send(request);
  const Session session = handler_->Take("Hi");
  session.Say("one");
  ExpectChunk("a", "one");
  session.End();
  const auto last = Next().infer_response();
  EXPECT_EQ(last.outputs_size(), 0);
  EXPECT_TRUE(IsFinal(last));
  EXPECT_TRUE(CloseAndFinish().ok());
}

TEST_F(StreamInferTest, WithoutStreamTheAnswerComesWhole) {
  Send(TextRequest("Hi", "a"));
  const Session session = handler_->Take("Hi");
  session.Say("one ");
  session.Say("two");
  session.End();
  const auto only = Next().infer_response();
  EXPECT_EQ(TextOf(only), "one two");
  EXPECT_TRUE(IsFinal(only));
  EXPECT_TRUE(CloseAndFinish().ok());
}

TEST_F(StreamInferTest, RequestsAreAnsweredInterleavedUnderTheirIds) {
  Send(TextRequest("first", "a", true));
  Send(TextRequest("second", "b", true));
  const Session a = handler_->Take("first");
  const Session b = handler_->Take("second");
  b.Say("b1");
  ExpectChunk("b", "b1");
  a.Say("a1");
  ExpectChunk("a", "a1");
  b.Say("b2");
  ExpectChunk("b", "b2");
  b.End();
  EXPECT_EQ(Next().infer_response().id(), "b");
  a.End();
  const auto last = Next().infer_response();
  EXPECT_EQ(last.id(), "a");
  EXPECT_TRUE(IsFinal(last));
  EXPECT_TRUE(CloseAndFinish().ok());
}

TEST_F(StreamInferTest, AnErrorLeavesTheStreamUsable) {
  auto bad = TextRequest("Hi", "bad");
  bad.set_model_name("huge");
  Send(bad);
  const auto error = Next();
  EXPECT_THAT(error.error_message(), HasSubstr("huge"));
  EXPECT_EQ(error.infer_response().id(), "bad");
  EXPECT_EQ(
      error.infer_response().parameters().at("status_code").string_param(),
      "NOT_FOUND");

  Send(TextRequest("Hi", "good"));
  handler_->Take("Hi").End();
  EXPECT_EQ(Next().infer_response().id(), "good");
  EXPECT_TRUE(CloseAndFinish().ok());
}

TEST_F(StreamInferTest, AFailureAfterTextComesAfterTheText) {
  Send(TextRequest("Hi", "a", true));
  const Session session = handler_->Take("Hi");
  session.Say("partial");
  ExpectChunk("a", "partial");
  session.Fail(DeadlineExceeded("too slow"));
  EXPECT_EQ(Next().error_message(), "too slow");
  EXPECT_TRUE(CloseAndFinish().ok());
}

// A client that reads late gets all text, in order, in fewer answers.
TEST_F(StreamInferTest, SlowReaderLosesNothing) {
  Send(TextRequest("Hi", "a", true));
  const Session session = handler_->Take("Hi");
  std::string said, read;
  for (int i = 0; i < 5000; ++i) {
    const std::string word = "word" + std::to_string(i) + " ";
    said += word;
    session.Say(word);
  }
  session.End();
  for (;;) {
    const auto next = Next().infer_response();
    if (next.outputs_size() == 0) break;
    read += TextOf(next);
    if (IsFinal(next)) break;
  }
  EXPECT_EQ(read, said);
  EXPECT_TRUE(CloseAndFinish().ok());
}

TEST_F(StreamInferTest, HalfCloseWaitsForWhatIsOpen) {
  Send(TextRequest("Hi", "a"));
  const Session session = handler_->Take("Hi");
  stream_->WritesDone();
  session.Say("late");
  session.End();
  EXPECT_EQ(TextOf(Next().infer_response()), "late");
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream_->Read(&response));
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(StreamInferTest, CancelStopsEveryRequest) {
  Send(TextRequest("first", "a", true));
  Send(TextRequest("second", "b", true));
  const Session a = handler_->Take("first");
  const Session b = handler_->Take("second");
  std::promise<void> stopped_a, stopped_b;
  std::stop_callback on_a(a.stop, [&] { stopped_a.set_value(); });
  std::stop_callback on_b(b.stop, [&] { stopped_b.set_value(); });
  context_.TryCancel();
  stopped_a.get_future().wait();
  stopped_b.get_future().wait();
  a.Say("nobody reads this");
  a.Fail(Cancelled("stopped"));
  b.Fail(Cancelled("stopped"));
  EXPECT_EQ(stream_->Finish().error_code(), ::grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(repository_.Drain(Soon()));
}

TEST_F(StreamInferTest, IdleStreamEndsWhenTheServerDrains) {
  Send(TextRequest("Hi", "a"));
  handler_->Take("Hi").End();
  Next();
  server_->StopAccepting();
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream_->Read(&response));
  EXPECT_EQ(stream_->Finish().error_code(), ::grpc::StatusCode::UNAVAILABLE);
}

TEST_F(StreamInferTest, BusyStreamDrainsAfterItsAnswer) {
  Send(TextRequest("Hi", "a"));
  const Session session = handler_->Take("Hi");
  server_->StopAccepting();
  session.Say("whole");
  session.End();
  EXPECT_EQ(TextOf(Next().infer_response()), "whole");
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream_->Read(&response));
  EXPECT_EQ(stream_->Finish().error_code(), ::grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace millrace::server::testing
