// A real GrpcServer on a free loopback port, a real client, and between them a
// handler that the test itself plays: it waits for a request to arrive, then
// says chunk by chunk what the model answers.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "handlers/handler.h"
#include "handlers/pool.h"
#include "open_inference_grpc.grpc.pb.h"
#include "server/auth.h"
#include "server/grpc/server.h"
#include "server/lifecycle/language_model.h"
#include "server/lifecycle/repository.h"

namespace millrace::server::testing {

// Long enough for any machine; reached only by a test that fails.
inline std::chrono::steady_clock::time_point Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

// One request that reached the handler.
struct Session {
  handlers::GenerateRequest request;
  std::shared_ptr<handlers::GenerateSink> sink;
  std::stop_token stop;

  void Say(const std::string& text) const {
    handlers::OutputDelta chunk;
    chunk.text = text;
    chunk.num_tokens = 1;
    sink->OnDelta(std::move(chunk));
  }
  void End(handlers::FinishReason reason = handlers::FinishReason::kStop,
           int64_t prompt_tokens = 3, int64_t completion_tokens = 2) const {
    handlers::GenerateEnd end;
    end.reason = reason;
    end.usage.prompt_tokens = prompt_tokens;
    end.usage.completion_tokens = completion_tokens;
    sink->OnEnd(std::move(end));
  }
  void Fail(Status status) const {
    handlers::GenerateEnd end;
    end.status = std::move(status);
    sink->OnEnd(std::move(end));
  }
};

class PlayedHandler final : public handlers::GenerateHandler {
 public:
  // A prompt for which there is no memory.
  static constexpr std::string_view kTooMuch = "too much";

  void Start(handlers::GenerateRequest request,
             std::shared_ptr<handlers::GenerateSink> sink,
             std::stop_token stop) override {
    const std::string text =
        std::get<handlers::TextPrompt>(request.prompt).text;
    if (text == kTooMuch) throw std::bad_alloc();
    MutexLock lock(mu_);
    sessions_[text] = {std::move(request), std::move(sink), std::move(stop)};
    arrived_.NotifyAll();
  }

  // The request with this prompt, once it is here. The session leaves.
  Session Take(const std::string& prompt) {
    MutexLock lock(mu_);
    while (sessions_.count(prompt) == 0) {
      if (!arrived_.WaitUntil(mu_, Soon())) {
        ADD_FAILURE() << "no request with prompt '" << prompt << "' came";
        return {};
      }
    }
    Session session = std::move(sessions_[prompt]);
    sessions_.erase(prompt);
    return session;
  }

  StatusOr<handlers::TokenizedText> Tokenize(const std::string&, bool,
                                             bool) const override {
    return Unimplemented("not played");
  }
  StatusOr<handlers::TokenizedText> TokenizeChat(
      const handlers::ChatPrompt&) const override {
    return Unimplemented("not played");
  }
  StatusOr<std::string> Detokenize(const std::vector<int32_t>&) const override {
    return Unimplemented("not played");
  }
  StatusOr<std::string> ApplyTemplate(
      const handlers::ChatPrompt&) const override {
    return Unimplemented("not played");
  }

 private:
  Mutex mu_;
  CondVar arrived_;
  std::map<std::string, Session> sessions_ GUARDED_BY(mu_);
};

// ---- messages ----

inline std::string RawBytes(const std::string& text) {
  const uint32_t length = static_cast<uint32_t>(text.size());
  std::string raw(sizeof(length), '\0');
  std::memcpy(raw.data(), &length, sizeof(length));
  return raw + text;
}

inline void AddInput(inference::ModelInferRequest& request,
                     const std::string& name, const std::string& datatype,
                     const std::string& raw) {
  auto* input = request.add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  input->add_shape(1);
  request.add_raw_input_contents(raw);
}

// A request as tritonclient sends it: raw tensors.
inline inference::ModelInferRequest TextRequest(const std::string& prompt,
                                                const std::string& id = "",
                                                bool stream = false) {
  inference::ModelInferRequest request;
  request.set_model_name("tiny");
  request.set_id(id);
  AddInput(request, "text_input", "BYTES", RawBytes(prompt));
  if (stream) AddInput(request, "stream", "BOOL", std::string(1, '\1'));
  return request;
}

inline std::string TextOf(const inference::ModelInferResponse& response) {
  if (response.outputs_size() == 0) return "(no output)";
  if (response.raw_output_contents_size() == 1) {
    return response.raw_output_contents(0).substr(sizeof(uint32_t));
  }
  return response.outputs(0).contents().bytes_contents(0);
}

inline bool IsFinal(const inference::ModelInferResponse& response) {
  const auto found = response.parameters().find("triton_final_response");
  return found != response.parameters().end() && found->second.bool_param();
}

// ---- server ----

class GrpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.grpc_port = 0;
    settings_.access_log = false;
    auto handler = std::make_unique<PlayedHandler>();
    handler_ = handler.get();
    repository_.Add(std::make_shared<LanguageModel>(
        ModelFacts{
            .id = "tiny", .aliases = {"small"}, .platform = "millrace_llama"},
        TextFacts{}, nullptr, std::move(handler)));
    repository_.SetState(ServerState::kReady);
  }

  void TearDown() override {
    // Clients first: an open stream of a failed test must not hold the server.
    stub_.reset();
    channel_.reset();
    if (server_) server_->Stop(std::chrono::steady_clock::now());
  }

  GrpcServices Services() {
    GrpcServices services;
    services.repository = &repository_;
    services.pool = &pool_;
    services.metrics = &metrics_;
    services.auth = auth_.get();
    services.state = &state_;
    return services;
  }

  // Starts server and client; a test changes settings_ before.
  void Start() {
    auto auth = Auth::Create(settings_);
    ASSERT_TRUE(auth.ok()) << auth.status().ToString();
    auth_ = std::move(auth).value();
    auto server = GrpcServer::Start(settings_, Services());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(server).value();
    channel_ =
        ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                              ::grpc::InsecureChannelCredentials());
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
  }

  config::ServerSettings settings_;
  MetricRegistry metrics_;
  Repository repository_;
  PlayedHandler* handler_ = nullptr;
  handlers::Pool pool_{2, 64, {}};
  std::unique_ptr<Auth> auth_;
  ProtocolState state_{true, uint64_t{1} << 20};
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

}  // namespace millrace::server::testing
