// WebSockets on a connection: what happens when either side leaves at a bad
// moment, and bytes that are no frames.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "server/lifecycle/servable.h"
#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using handlers::TensorRequest;
using handlers::TensorResponse;
using models::DType;
using models::Tensor;
using models::TensorSpec;

// Gives y = x, at once or when the test says so.
class Echo final : public handlers::TensorHandler {
 public:
  struct Held {
    TensorRequest request;
    Done done;
    std::stop_token stop;
    void Answer() {
      TensorResponse response;
      response.outputs.push_back({"y", request.inputs[0].tensor.Share()});
      done(std::move(response));
    }
  };

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    Held held{std::move(request), std::move(done), std::move(stop)};
    {
      MutexLock lock(mu_);
      if (hold_) {
        held_.push_back(std::move(held));
        changed_.NotifyAll();
        return;
      }
    }
    held.Answer();
  }
  void Hold() {
    MutexLock lock(mu_);
    hold_ = true;
  }
  Held Next() {
    MutexLock lock(mu_);
    while (held_.empty()) changed_.Wait(mu_);
    Held held = std::move(held_.front());
    held_.erase(held_.begin());
    return held;
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

 private:
  const std::vector<TensorSpec> inputs_ = {
      {.name = "x", .dtype = DType::kF32, .dims = {-1}, .text = "FP32 [-1]"}};
  const std::vector<TensorSpec> outputs_ = {
      {.name = "y", .dtype = DType::kF32, .dims = {-1}, .text = "FP32 [-1]"}};
  Mutex mu_;
  CondVar changed_;
  bool hold_ GUARDED_BY(mu_) = false;
  std::vector<Held> held_ GUARDED_BY(mu_);
};

class EchoModel final : public Servable {
 public:
  EchoModel() : Servable({.id = "echo"}) {}
  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override {
    return InvalidArgument("it takes tensors");
  }
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return &handler_;
  }
  bool Drain(std::chrono::steady_clock::time_point) override { return true; }
  Echo& handler() { return handler_; }

 private:
  mutable Echo handler_;
};

// A masked frame (RFC 6455, section 5.2) of less than 126 bytes; the mask is 0.
std::string Frame(int opcode, const std::string& data) {
  std::string frame = {static_cast<char>(0x80 | opcode),
                       static_cast<char>(0x80 | data.size()),
                       0,
                       0,
                       0,
                       0};
  return frame + data;
}

constexpr char kUpgrade[] =
    "GET /v2/models/echo/sessions HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

class WebSocketTest : public testing::Test {
 protected:
  WebSocketTest() {
    auto model = std::make_shared<EchoModel>();
    echo_ = &model->handler();
    server_.repository.Add(std::move(model));
  }

  std::unique_ptr<Client> Open() {
    auto client = std::make_unique<Client>(server_.port());
    client->Send(kUpgrade);
    const std::string head = client->ReadUntil("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 101")) << head;
    // The example of RFC 6455, section 1.3.
    EXPECT_NE(head.find("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), std::string::npos);
    return client;
  }

  const std::string message_ = Frame(2, std::string(8, '\0'));
  TestServer server_;
  Echo* echo_ = nullptr;
};

TEST_F(WebSocketTest, AnswersEachMessage) {
  const auto client = Open();
  client->Send(message_);
  EXPECT_NE(client->ReadUntil("}]}").find("[0.0,0.0]"), std::string::npos);
  client->Send(Frame(1, R"({"type": "session.end"})"));
  // The text, then code 1000.
  EXPECT_TRUE(client->ReadUntil("\x03\xe8").ends_with("\x88\x02\x03\xe8"));
  client->Send(Frame(8, "\x03\xe8"));
  EXPECT_TRUE(client->AtEnd());
}

TEST_F(WebSocketTest, AForcedStopCutsOffWhatRunsAndWaits) {
  echo_->Hold();
  const auto idle = Open();
  const auto busy = Open();
  busy->Send(message_ + message_ + message_);
  auto held = echo_->Next();
  const auto begun = std::chrono::steady_clock::now();
  server_.http->Stop(begun);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  EXPECT_TRUE(held.stop.stop_requested());
  held.Answer();  // its socket is gone
}

TEST_F(WebSocketTest, AClientThatLeavesStopsItsRequest) {
  echo_->Hold();
  for (const bool resets : {true, false}) {
    auto client = Open();
    client->Send(message_);
    auto held = echo_->Next();
    if (resets) {
      client->Reset();
    } else {
      client->Close();
    }
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(kPatienceMs);
    while (!held.stop.stop_requested() &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(held.stop.stop_requested());
    held.Answer();
  }
}

TEST_F(WebSocketTest, AnyBytesEndOneSessionAtMost) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  const auto other = Open();
  for (int round = 0; round < 100; ++round) {
    const auto client = Open();
    std::string bytes = round % 2 == 0 ? message_ : "";
    const size_t size = random() % 300;
    for (size_t i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(random()));
    }
    client->Send(bytes);
    if (round % 3 == 0) client->Reset();
  }
  other->Send(message_);
  EXPECT_NE(other->ReadUntil("}]}").find("[0.0,0.0]"), std::string::npos);
}

}  // namespace
}  // namespace millrace::server::http
