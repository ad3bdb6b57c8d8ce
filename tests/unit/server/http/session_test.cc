// Connections: framing, limits, time-outs, and clients that behave badly.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using testing::TestWithParam;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kHi[] = R"({"messages":[{"role":"user","content":"hi"}]})";
constexpr char kHiStream[] =
    R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})";

TEST(Session, KeepsTheConnectionAliveBetweenRequests) {
  TestServer server;
  Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    const Reply reply = client.Get("/health");
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "{\"status\":\"ok\"}");
    EXPECT_EQ(reply.Header("connection"), "keep-alive");
  }
}

TEST(Session, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  client.Send(PostText(kChat, kHi) + GetText("/version") +
              PostText(kChat, kHiStream) + GetText("/health"));
  EXPECT_NE(client.Read().body.find("chat.completion\""), std::string::npos);
  EXPECT_NE(client.Read().body.find("version"), std::string::npos);
  EXPECT_NE(client.Read().body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(client.Read().body, "{\"status\":\"ok\"}");
}

TEST(Session, TakesARequestByteByByte) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  for (char c : PostText(kChat, kHi)) client.Send(std::string(1, c));
  EXPECT_EQ(client.Read().status, 200);
}

TEST(Session, TakesAChunkedBody) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  const std::string body = kHi;
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      "Transfer-Encoding: chunked\r\n\r\n5\r\n" +
      body.substr(0, 5) + "\r\n");
  char size[16];
  std::snprintf(size, sizeof size, "%zx", body.size() - 5);
  client.Send(size + std::string("\r\n") + body.substr(5) + "\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(Session, AnswersExpectContinueBeforeTheBody) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: "
      "100-continue\r\nContent-Length: " +
      std::to_string(sizeof kHi - 1) + "\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send(kHi);
  EXPECT_EQ(client.Read().status, 200);
}

TEST(Session, RefusesBeforeTheBodyWhenTheHeadIsEnough) {
  TestServer server;
  Client client(server.port());
  client.Send(
      "POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.Read().status, 404);
  EXPECT_TRUE(client.AtEnd());
}

TEST(Session, Http10ClosesAndStreamsUntilTheEnd) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  client.Send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(sizeof kHiStream - 1) + "\r\n\r\n" + kHiStream);
  const Reply reply = client.Read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Header("transfer-encoding"), "");
  EXPECT_EQ(reply.Header("connection"), "close");
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(client.AtEnd());
}

TEST(Session, Http10KeepsAliveWhenAsked) {
  TestServer server;
  Client client(server.port());
  client.Send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.Read().Header("connection"), "keep-alive");
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(Session, ConnectionCloseIsRespected) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.Get("/health", "Connection: close\r\n");
  EXPECT_EQ(reply.Header("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

TEST(Session, HeadHasTheHeadersOfGetAndNoBody) {
  TestServer server;
  Client client(server.port());
  client.Send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const Reply reply = client.Read(/*head=*/true);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Header("content-length"), "15");
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(Session, EmptyLinesBeforeARequestAreSkipped) {
  TestServer server;
  Client client(server.port());
  client.Send("\r\n\r\n" + GetText("/health"));
  EXPECT_EQ(client.Read().status, 200);
}

// --- Limits -----------------------------------------------------------------

TEST(Session, LongHeaderIs431) {
  TestServer server;
  Client client(server.port());
  client.Send("GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " +
              std::string(20'000, 'a') + "\r\n\r\n");
  const Reply reply = client.Read();
  EXPECT_EQ(reply.status, 431);
  EXPECT_NE(reply.body.find("16384 bytes"), std::string::npos);
  EXPECT_TRUE(client.AtEnd());
}

TEST(Session, AnnouncedLongBodyIs413) {
  config::ServerSettings settings = QuietSettings();
  settings.http_max_input_bytes = 100;
  TestServer server(settings);
  Client client(server.port());
  client.Send(PostText(kChat, std::string(101, 'x')));
  const Reply reply = client.Read();
  EXPECT_EQ(reply.status, 413);
  EXPECT_NE(reply.body.find("100 bytes"), std::string::npos);
  EXPECT_TRUE(client.AtEnd());
}

TEST(Session, LongChunkedBodyIs413) {
  config::ServerSettings settings = QuietSettings();
  settings.http_max_input_bytes = 100;
  TestServer server(settings);
  Client client(server.port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      "Transfer-Encoding: chunked\r\n\r\n40\r\n" +
      std::string(64, 'x') + "\r\n40\r\n" + std::string(64, 'x') +
      "\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().status, 413);
  EXPECT_TRUE(client.AtEnd());
}

TEST(Session, EndlessChunkSizeLineIs400) {
  TestServer server;
  Client client(server.port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      "Transfer-Encoding: chunked\r\n\r\n1;" +
      std::string(200'000, 'x'));
  EXPECT_EQ(client.Read().status, 400);
}

TEST(Session, MalformedRequestsAre400) {
  for (const char* text :
       {"GET\r\n\r\n", "GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
        "Transfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"}) {
    TestServer server;
    Client client(server.port());
    client.Send(text);
    const Reply reply = client.Read();
    EXPECT_EQ(reply.status, 400) << text;
    EXPECT_NE(reply.body.find("\"code\":\"malformed_http\""), std::string::npos)
        << reply.body;
    EXPECT_NE(reply.Header("x-request-id"), "");
  }
}

TEST(Session, BodiesTogetherAreBounded) {
  config::ServerSettings settings = QuietSettings();
  settings.http_max_input_bytes = 1000;  // times 8 for all together
  TestServer server(settings);
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      "Content-Length: 1000\r\n\r\n";
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->Send(head + std::string(999, ' '));
  }
  Client probe(server.port());
  const auto held = [&](const std::string& bytes) {
    const std::string metrics = probe.Get("/metrics").body;
    return metrics.find("millrace_http_body_bytes " + bytes + "\n") !=
           std::string::npos;
  };
  while (!held("7992")) {
  }
  Client last(server.port());
  last.Send(head + std::string(999, ' '));
  const Reply reply = last.Read();
  EXPECT_EQ(reply.status, 429);
  EXPECT_NE(reply.body.find("too_many_bodies"), std::string::npos);
  for (auto& client : clients) {
    client->Send(" ");
    EXPECT_EQ(client->Read().status, 400);  // spaces are no JSON
  }
  while (!held("0")) {
  }
}

// --- Time-outs --------------------------------------------------------------

TEST(Session, SlowHeaderIs408) {
  config::ServerSettings settings = QuietSettings();
  settings.header_timeout_ms = 50;
  TestServer server(settings);
  Client client(server.port());
  client.Send("GET /health HT");
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_TRUE(client.AtEnd());
}

TEST(Session, StalledBodyIs408) {
  config::ServerSettings settings = QuietSettings();
  settings.header_timeout_ms = 50;
  TestServer server(settings);
  Client client(server.port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      "Content-Length: 10\r\n\r\n{");
  EXPECT_EQ(client.Read().status, 408);
}

TEST(Session, IdleConnectionIsClosedQuietly) {
  config::ServerSettings settings = QuietSettings();
  settings.idle_timeout_ms = 50;
  TestServer server(settings);
  Client client(server.port());
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_TRUE(client.AtEnd());
}

// --- Clients that go away or do not read ------------------------------------

TEST(Session, OrderlyEndWhileStreamingStopsTheRequest) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kChat, kHiStream));
  Started started = server.handler->Next();
  started.Accept();
  started.Chunk("Hello");
  client.ReadUntil("Hello");
  client.Close();
  EXPECT_TRUE(started.WaitForStop());
  started.Fail(Cancelled("stopped"));
}

TEST(Session, ResetBeforeTheFirstTokenStopsTheRequest) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kChat, kHi));
  Started started = server.handler->Next();
  client.Reset();
  EXPECT_TRUE(started.WaitForStop());
  started.Fail(Cancelled("stopped"));
}

TEST(Session, HalfClosedClientStillGetsACheapAnswer) {
  TestServer server;
  Client client(server.port());
  client.Send(GetText("/health"));
  client.ShutdownSend();
  EXPECT_EQ(client.Read().status, 200);
}

TEST(Session, ClientThatReadsNothingIsStoppedAndDelaysNobody) {
  config::ServerSettings settings = QuietSettings();
  settings.write_timeout_ms = 300;
  TestServer server(settings);
  Client slow(server.port(), /*receive_buffer=*/4096);
  slow.Send(PostText(kChat, kHiStream));
  Started started = server.handler->Next();
  started.Accept();
  // More than the kernel's buffers hold.
  for (int i = 0; i < 16; ++i) started.Chunk(std::string(1 << 20, 'x'));
  Client other(server.port());
  EXPECT_EQ(other.Get("/health").status, 200);
  EXPECT_TRUE(started.WaitForStop());
  started.Fail(Cancelled("stopped"));
  EXPECT_EQ(other.Get("/health").status, 200);
}

TEST(Session, ClientThatReadsLateGetsEverything) {
  TestServer server;
  Client slow(server.port());
  slow.Send(PostText(kChat, kHiStream));
  Started started = server.handler->Next();
  started.Accept();
  constexpr int kChunks = 16;  // MiB, more than the kernel's buffers hold
  for (int i = 0; i < kChunks; ++i) started.Chunk(std::string(1 << 20, 'Z'));
  started.End();
  const Reply reply = slow.Read();
  EXPECT_EQ(std::count(reply.body.begin(), reply.body.end(), 'Z'),
            kChunks << 20);
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
}

// --- Stopping ---------------------------------------------------------------

TEST(Session, StopAcceptingClosesIdleConnectionsAndEndsBusyOnes) {
  TestServer server;
  Client idle(server.port());
  EXPECT_EQ(idle.Get("/health").status, 200);
  Client busy(server.port());
  busy.Send(PostText(kChat, kHiStream));
  Started started = server.handler->Next();
  started.Accept();
  busy.ReadUntil("assistant");
  server.http->StopAccepting();
  EXPECT_TRUE(idle.AtEnd());
  started.Chunk("late");
  started.End();
  EXPECT_NE(busy.ReadUntil("[DONE]").find("late"), std::string::npos);
  busy.ReadUntil("0\r\n\r\n");
  EXPECT_TRUE(busy.AtEnd());
}

TEST(Session, AnswersEndTheirConnectionsOnceTheServerLeaves) {
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(client.Get("/health").Header("connection"), "keep-alive");
  server.http->Leave();
  EXPECT_EQ(client.Get("/health").Header("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
  // There may be no other instance: it is still answered.
  Client late(server.port());
  EXPECT_EQ(late.Get("/health").Header("connection"), "close");
}

TEST(Session, AFirstRequestIsAnsweredThoughTheServerAcceptsNoMore) {
  TestServer server;
  Client fresh(server.port()), silent(server.port());
  server.http->StopAccepting();
  EXPECT_EQ(fresh.Get("/health").status, 200);
  EXPECT_TRUE(fresh.AtEnd());
  EXPECT_TRUE(silent.AtEnd());
  server.http->Stop(std::chrono::steady_clock::now() +
                    std::chrono::seconds(10));
}

TEST(Session, StopCutsOffWhatIsLeftAtTheDeadline) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kChat, kHiStream));
  Started started = server.handler->Next();
  started.Accept();
  server.http->Stop(std::chrono::steady_clock::now());
  EXPECT_TRUE(started.WaitForStop());
  // The answer outlives the server's sockets.
  started.Chunk("too late");
  started.Fail(Unavailable("draining"));
}

TEST(Session, EachRequestIsOneLineOfTheAccessLog) {
  config::ServerSettings settings = QuietSettings();
  settings.access_log = true;
  testing::internal::CaptureStderr();
  {
    TestServer server(settings);
    server.handler->script = SayHello;
    Client client(server.port());
    client.Post(kChat, kHi, "X-Request-Id: r-7\r\n");
    client.Get("/nowhere?secret=1");
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  for (const char* part :
       {"id=r-7", "path=/v1/chat/completions", "status=200", "model=tiny",
        "prompt_tokens=3", "completion_tokens=2", "outcome=ok", "status=404",
        "path=/nowhere ", "outcome=client_error"}) {
    EXPECT_NE(log.find(part), std::string::npos) << part << " in " << log;
  }
  EXPECT_EQ(log.find("=-1"), std::string::npos) << "absent is left out";
}

// What a server logs while `work` asks it.
std::string AccessLogOf(const std::function<void(TestServer&, Client&)>& work,
                        config::ServerSettings settings = QuietSettings()) {
  settings.access_log = true;
  testing::internal::CaptureStderr();
  {
    TestServer server(settings);
    Client client(server.port());
    work(server, client);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Session, ARefusedRequestsLineSaysWhy) {
  const std::string log = AccessLogOf([](TestServer&, Client& client) {
    client.Post(kChat, "{}");
    client.Get("/nowhere");
    client.Get("/v2/models/other");
    client.Send("NONSENSE\r\n\r\n");
    client.Read();
  });
  for (const char* part :
       {"error_kind=INVALID_ARGUMENT error_field=messages error=\"messages ",
        "error_kind=route_not_found error=\"there is nothing at '/nowhere'",
        "error_kind=model_not_found error_field=model error=\"the model "
        "'other' does not exist",
        "error_kind=malformed_http"}) {
    EXPECT_NE(log.find(part), std::string::npos) << part << " in " << log;
  }
  for (const char* absent : {"=-1", "model=\"\"", "tokens=", "ttft_s="}) {
    EXPECT_EQ(log.find(absent), std::string::npos) << absent << " in " << log;
  }
}

TEST(Session, PathsMayBeLeftOutOfTheAccessLog) {
  config::ServerSettings settings = QuietSettings();
  settings.disable_access_log_for_endpoints = {"/metrics", "/health"};
  const std::string log = AccessLogOf(
      [](TestServer&, Client& client) {
        for (const char* path :
             {"/metrics", "/health", "/health?a=b", "/health/live"}) {
          client.Get(path);
        }
      },
      settings);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("path=/health/live "), std::string::npos) << log;
}

TEST(Session, AStreamThatFailsLateSaysWhyInTheLog) {
  const std::string log = AccessLogOf([](TestServer& server, Client& client) {
    client.Send(PostText(kChat, kHiStream));
    Started started = server.handler->Next();
    started.Accept();
    started.Chunk("He");
    started.Fail(ResourceExhausted("no pages are left").Because("kv_full"));
    client.Read();
  });
  for (const char* part : {"status=200", "outcome=rejected",
                           "error_kind=kv_full error=\"no pages are left\""}) {
    EXPECT_NE(log.find(part), std::string::npos) << part << " in " << log;
  }
}

TEST(Session, BusyPortIsAStatusThatNamesIt) {
  TestServer server;
  config::ServerSettings settings = QuietSettings();
  settings.http_port = server.port();
  HttpServices services;
  services.repository = &server.repository;
  services.pool = server.pool.get();
  services.auth = server.auth.get();
  services.state = &server.state;
  const auto second = HttpServer::Start(settings, services);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(second.status().message())
                .find("127.0.0.1:" + std::to_string(server.port())),
            std::string::npos);
}

}  // namespace
}  // namespace millrace::server::http
