// A whole HTTP server on a loopback port over a scripted model, and a client of
// plain sockets that says exactly which bytes go when.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/metrics.h"
#include "config/schema.h"
#include "handlers/handler.h"
#include "handlers/pool.h"
#include "server/auth.h"
#include "server/http/listener.h"
#include "server/lifecycle/language_model.h"
#include "server/lifecycle/repository.h"
#include "server/protocol_state.h"

namespace millrace::server::http {

// Answers every wait of these tests: long enough for a sanitizer build on a
// busy machine, and only ever reached when something is broken.
inline constexpr int kPatienceMs = 120'000;

// A request as the handler got it, to be answered by the test.
struct Started {
  handlers::GenerateRequest request;
  std::shared_ptr<handlers::GenerateSink> sink;
  std::stop_token stop;

  void Accept(int64_t prompt_tokens = 3);
  void Chunk(std::string text, int32_t num_tokens = 1);
  void End(handlers::FinishReason reason = handlers::FinishReason::kStop);
  void Fail(Status status);
  // False when nobody asked for a stop in time.
  bool WaitForStop();

  handlers::Usage usage;
};

class FakeHandler final : public handlers::GenerateHandler {
 public:
  // Runs on the handler pool. Without one, requests wait in Next().
  std::function<void(Started)> script;

  // The next request; fails the test's patience with a null sink.
  Started Next();

  void Start(handlers::GenerateRequest request,
             std::shared_ptr<handlers::GenerateSink> sink,
             std::stop_token stop) override;
  // One token a byte, its id the byte's value.
  StatusOr<handlers::TokenizedText> Tokenize(const std::string& text,
                                             bool add_special,
                                             bool parse_special) const override;
  StatusOr<handlers::TokenizedText> TokenizeChat(
      const handlers::ChatPrompt& chat) const override;
  StatusOr<std::string> Detokenize(
      const std::vector<int32_t>& ids) const override;
  StatusOr<std::string> ApplyTemplate(
      const handlers::ChatPrompt& chat) const override;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Started> waiting_;
};

// "Hello world" in two chunks.
void SayHello(Started started);

// Small time-outs are set by the tests that wait for them.
config::ServerSettings QuietSettings();

class TestServer {
 public:
  explicit TestServer(config::ServerSettings settings = QuietSettings());
  ~TestServer();

  int port() const { return http->port(); }

  FakeHandler* handler = nullptr;  // the servable owns it
  std::shared_ptr<Servable> servable;
  MetricRegistry metrics;
  LoadProgress progress;
  Repository repository{nullptr, nullptr, {.progress = &progress}};
  std::unique_ptr<handlers::Pool> pool;
  std::unique_ptr<Auth> auth;
  ProtocolState state{true, uint64_t{1} << 20};
  std::unique_ptr<HttpServer> http;
};

struct Reply {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // as sent
  std::string body;                                          // decoded
  std::string Header(std::string_view lower_name) const;
};

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(std::string_view bytes);
  // As much as the kernel takes without waiting for the server.
  void ShutdownSend();
  void Close();
  // With a reset instead of an orderly end.
  void Reset();

  // The next whole answer; status 0 when the connection ended before. The
  // answer to HEAD has no body.
  Reply Read(bool head = false);
  // Everything up to and including `mark`, or to the end of the connection.
  std::string ReadUntil(std::string_view mark);
  // True when the server closed the connection and nothing was left.
  bool AtEnd();

  // Sends one request and reads its answer.
  Reply Get(std::string_view path, std::string_view headers = "");
  Reply Post(std::string_view path, std::string_view body,
             std::string_view headers = "Content-Type: application/json\r\n");

 private:
  bool Fill();  // false at the end

  int fd_ = -1;
  std::string pending_;
};

std::string GetText(std::string_view path, std::string_view headers = "");
std::string PostText(
    std::string_view path, std::string_view body,
    std::string_view headers = "Content-Type: application/json\r\n");

}  // namespace millrace::server::http
