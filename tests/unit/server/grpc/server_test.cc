// The server as a whole: health, metadata, keys, limits, starting and stopping.
#include "server/grpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <future>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/server/grpc/fixture.h"

namespace millrace::server::testing {
namespace {

using ::testing::HasSubstr;

struct RawAnswer {
  ::grpc::Status status;
  std::string bytes;
};

// A call by its name with a message as bytes: health and reflection have no
// client headers in the library.
RawAnswer CallByName(const std::shared_ptr<::grpc::Channel>& channel,
                     const std::string& method, const std::string& bytes) {
  ::grpc::GenericStub stub(channel);
  ::grpc::ClientContext context;
  const ::grpc::Slice slice(bytes);
  const ::grpc::ByteBuffer request(&slice, 1);
  ::grpc::ByteBuffer response;
  std::promise<::grpc::Status> done;
  stub.UnaryCall(&context, method, {}, &request, &response,
                 [&](::grpc::Status status) { done.set_value(status); });
  RawAnswer answer{done.get_future().get(), ""};
  std::vector<::grpc::Slice> slices;
  if (answer.status.ok() && response.Dump(&slices).ok()) {
    for (const ::grpc::Slice& part : slices) {
      answer.bytes.append(reinterpret_cast<const char*>(part.begin()),
                          part.size());
    }
  }
  return answer;
}

// grpc.health.v1: the request is field 1, a string; the answer field 1, an
// enum.
std::string Health(const std::shared_ptr<::grpc::Channel>& channel,
                   const std::string& service) {
  std::string request;
  if (!service.empty()) {
    request =
        "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
  }
  const RawAnswer answer =
      CallByName(channel, "/grpc.health.v1.Health/Check", request);
  if (answer.status.error_code() == ::grpc::StatusCode::NOT_FOUND) {
    return "NOT_FOUND";
  }
  if (answer.bytes == "\x08\x01") return "SERVING";
  if (answer.bytes == "\x08\x02") return "NOT_SERVING";
  return "another answer";
}

TEST_F(GrpcTest, LiveReadyAndMetadata) {
  Start();
  ::grpc::ClientContext c1, c2, c3;
  inference::ServerLiveResponse live;
  EXPECT_TRUE(stub_->ServerLive(&c1, {}, &live).ok());
  EXPECT_TRUE(live.live());
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(stub_->ServerReady(&c2, {}, &ready).ok());
  EXPECT_TRUE(ready.ready());
  inference::ServerMetadataResponse metadata;
  EXPECT_TRUE(stub_->ServerMetadata(&c3, {}, &metadata).ok());
  EXPECT_EQ(metadata.name(), "millrace");
  EXPECT_NE(metadata.version(), "");
}

TEST_F(GrpcTest, ReadyFollowsTheRepository) {
  Start();
  for (const ServerState state :
       {ServerState::kLoading, ServerState::kReady, ServerState::kDraining}) {
    repository_.SetState(state);
    ::grpc::ClientContext c1, c2;
    inference::ServerReadyResponse server;
    EXPECT_TRUE(stub_->ServerReady(&c1, {}, &server).ok());
    EXPECT_EQ(server.ready(), state == ServerState::kReady);
    inference::ModelReadyRequest request;
    request.set_name("tiny");
    inference::ModelReadyResponse model;
    EXPECT_TRUE(stub_->ModelReady(&c2, request, &model).ok());
    EXPECT_EQ(model.ready(), state == ServerState::kReady);
  }
}

TEST_F(GrpcTest, HealthServesOnceTheLoadsHaveEnded) {
  repository_.SetState(ServerState::kLoading);
  Start();
  EXPECT_EQ(Health(channel_, ""), "NOT_SERVING");
  repository_.SetState(ServerState::kReady);
  server_->SetReady();
  EXPECT_EQ(Health(channel_, ""), "SERVING");
  server_->StopAccepting();
  server_->SetReady();
  EXPECT_EQ(Health(channel_, ""), "NOT_SERVING") << "a load ended too late";
}

TEST_F(GrpcTest, UnknownModelIsNotReadyWithoutError) {
  Start();
  for (const auto& [name, version, ready] :
       {std::tuple{"tiny", "", true}, std::tuple{"small", "1", true},
        std::tuple{"tiny", "2", false}, std::tuple{"huge", "", false}}) {
    ::grpc::ClientContext context;
    inference::ModelReadyRequest request;
    request.set_name(name);
    request.set_version(version);
    inference::ModelReadyResponse response;
    EXPECT_TRUE(stub_->ModelReady(&context, request, &response).ok());
    EXPECT_EQ(response.ready(), ready) << name << ":" << version;
  }
}

TEST_F(GrpcTest, ModelMetadataListsTensors) {
  Start();
  ::grpc::ClientContext c1, c2;
  inference::ModelMetadataRequest request;
  request.set_name("small");
  inference::ModelMetadataResponse response;
  ASSERT_TRUE(stub_->ModelMetadata(&c1, request, &response).ok());
  EXPECT_EQ(response.name(), "tiny");
  EXPECT_EQ(response.versions(0), "1");
  EXPECT_EQ(response.platform(), "millrace_llama");
  EXPECT_EQ(response.inputs(0).name(), "text_input");
  EXPECT_EQ(response.inputs(0).datatype(), "BYTES");
  EXPECT_EQ(response.inputs(0).shape(0), 1);
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).name(), "text_output");

  request.set_name("huge");
  const auto status = stub_->ModelMetadata(&c2, request, &response);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("huge"));
}

TEST_F(GrpcTest, KeysAreAskedForOnceThereAreSome) {
  settings_.api_key = "secret";
  Start();
  const auto call = [&](const char* name, const char* value) {
    ::grpc::ClientContext context;
    if (name != nullptr) context.AddMetadata(name, value);
    inference::ServerMetadataResponse metadata;
    return stub_->ServerMetadata(&context, {}, &metadata).error_code();
  };
  EXPECT_EQ(call(nullptr, ""), ::grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(call("x-api-key", "wrong"), ::grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(call("x-api-key", "secret"), ::grpc::StatusCode::OK);
  EXPECT_EQ(call("authorization", "Bearer secret"), ::grpc::StatusCode::OK);

  ::grpc::ClientContext infer, stream;
  inference::ModelInferResponse response;
  EXPECT_EQ(stub_->ModelInfer(&infer, TextRequest("p"), &response).error_code(),
            ::grpc::StatusCode::UNAUTHENTICATED);
  auto bidi = stub_->ModelStreamInfer(&stream);
  EXPECT_EQ(bidi->Finish().error_code(), ::grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(GrpcTest, HealthNeedsNoKeyAndFollowsStopAccepting) {
  settings_.api_key = "secret";
  Start();
  for (const char* service : {"", "inference.GRPCInferenceService"}) {
    EXPECT_EQ(Health(channel_, service), "SERVING") << service;
  }
  EXPECT_EQ(Health(channel_, "no.such.Service"), "NOT_FOUND");
  ::grpc::ClientContext live_context, ready_context;
  inference::ServerLiveResponse live;
  EXPECT_TRUE(stub_->ServerLive(&live_context, {}, &live).ok());
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(stub_->ServerReady(&ready_context, {}, &ready).ok());
  server_->StopAccepting();
  EXPECT_EQ(Health(channel_, ""), "NOT_SERVING");
}

// list_services is field 7, a string.
TEST_F(GrpcTest, ReflectionListsTheService) {
  Start();
  const RawAnswer answer = CallByName(
      channel_,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      "\x3a\x01*");
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.bytes, HasSubstr("inference.GRPCInferenceService"));
  EXPECT_THAT(answer.bytes, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(GrpcTest, BusyPortIsASentence) {
  Start();
  settings_.grpc_port = server_->port();
  const auto second = GrpcServer::Start(settings_, Services());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  const std::string message(second.status().message());
  EXPECT_THAT(message,
              HasSubstr("127.0.0.1:" + std::to_string(server_->port())));
  EXPECT_THAT(message, HasSubstr("Address already in use"));
}

TEST_F(GrpcTest, AddressOfAnotherMachineIsASentence) {
  settings_.host = "192.0.2.1";  // TEST-NET-1, RFC 5737
  const auto server = GrpcServer::Start(settings_, Services());
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("192.0.2.1"));
}

TEST_F(GrpcTest, MessageOverTheLimitIsRefused) {
  settings_.http_max_input_bytes = 1000;
  Start();
  ::grpc::ClientContext context;
  inference::ModelInferResponse response;
  const auto status = stub_->ModelInfer(
      &context, TextRequest(std::string(2000, 'x')), &response);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcTest, CallsThatAreNotOursAreUnimplemented) {
  Start();
  const RawAnswer answer =
      CallByName(channel_, "/inference.GRPCInferenceService/Nothing", "");
  EXPECT_EQ(answer.status.error_code(), ::grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(answer.status.error_message(),
              HasSubstr("GRPCInferenceService/Nothing'; reflection lists its "
                        "methods"));
  EXPECT_THAT(
      CallByName(channel_, "/some.Service/Call", "").status.error_message(),
      HasSubstr("there is no method '/some.Service/Call'; this server "
                "has inference.GRPCInferenceService"));
}

TEST_F(GrpcTest, StopCancelsWhatIsLeftAtTheDeadline) {
  Start();
  ::grpc::ClientContext context;
  inference::ModelInferResponse response;
  auto call = std::async(std::launch::async, [&] {
    return stub_->ModelInfer(&context, TextRequest("endless"), &response);
  });
  Session session = handler_->Take("endless");
  // The handler of a cancelled call ends it, as the engine does at a step edge.
  std::stop_callback ends(session.stop,
                          [&] { session.Fail(Cancelled("stopped")); });
  server_->Stop(std::chrono::steady_clock::now());
  EXPECT_FALSE(call.get().ok());
}

}  // namespace
}  // namespace millrace::server::testing
