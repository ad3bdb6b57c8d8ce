// Chat and completions: requests in, OpenAI's answers out.
#include <gtest/gtest.h>

#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kCompletions[] = "/v1/completions";

Json Body(const Reply& reply) {
  return Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
}

// The data of each event.
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  size_t at = 0;
  while (body.compare(at, 6, "data: ") == 0) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  EXPECT_EQ(at, body.size()) << "left over: " << body.substr(at);
  return events;
}

std::string ChatBody(const std::string& more) {
  return R"({"model":"tiny","messages":[{"role":"user","content":"hi"}])" +
         more + "}";
}

TEST(Completions, StreamSendsItsHeaderWhenAccepted) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kChat, ChatBody(R"(,"stream":true)")));
  Started started = server.handler->Next();
  started.Accept();
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream"), std::string::npos);
  // The role comes before any token.
  EXPECT_NE(client.ReadUntil("\n\n").find(R"("role":"assistant")"),
            std::string::npos);
  started.Chunk("late");
  EXPECT_NE(client.ReadUntil("\n\n").find("late"), std::string::npos);
  started.End();
  client.ReadUntil("[DONE]");
}

TEST(Completions, AllChunksOfAStreamCarryTheSameId) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  const auto events =
      Events(client.Post(kChat, ChatBody(R"(,"stream":true)")).body);
  ASSERT_EQ(events.size(), 5u);  // role, two texts, finish, [DONE]
  EXPECT_EQ(events.back(), "[DONE]");
  const Json first = Json::parse(events[0]);
  EXPECT_EQ(first["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    EXPECT_EQ(event["id"], first["id"]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_FALSE(event.contains("usage"));
    EXPECT_EQ(event["choices"][0]["finish_reason"].is_null(), i + 2 < 5);
  }
}

TEST(Completions, ContinuousUsageCountsAsItGoes) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  const auto events =
      Events(client
                 .Post(kChat, ChatBody(R"(,"stream":true,"stream_options":)"
                                       R"({"include_usage":true,)"
                                       R"("continuous_usage_stats":true})"))
                 .body);
  ASSERT_EQ(events.size(), 6u);
  const int expected[] = {0, 1, 2, 2, 2};
  for (int i = 0; i < 5; ++i) {
    const Json usage = Json::parse(events[static_cast<size_t>(i)])["usage"];
    EXPECT_EQ(usage["prompt_tokens"], 3);
    EXPECT_EQ(usage["completion_tokens"], expected[i]);
  }
  EXPECT_TRUE(Json::parse(events[4])["choices"].empty());
}

TEST(Completions, StreamOptionsWithoutStreamAre400) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.Post(
      kChat, ChatBody(R"(,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(Body(reply)["error"]["param"], "stream_options");
}

TEST(Completions, FailureBeforeTheFirstTokenIsAPlainError) {
  TestServer server;
  server.handler->script = [](Started started) {
    started.Fail(ResourceExhausted("the queue is full")
                     .Because("queue_full")
                     .RetryAfterMs(1500));
  };
  Client client(server.port());
  for (const char* more : {"", R"(,"stream":true)"}) {
    const Reply reply = client.Post(kChat, ChatBody(more));
    EXPECT_EQ(reply.status, 429);
    EXPECT_EQ(reply.Header("retry-after"), "2");
    EXPECT_EQ(reply.Header("retry-after-ms"), "1500");
    EXPECT_EQ(Body(reply)["error"]["code"], "queue_full");
  }
}

TEST(Completions, FailureMidStreamIsAnEventAndTheEnd) {
  TestServer server;
  server.handler->script = [](Started started) {
    started.Accept();
    started.Chunk("Hel");
    started.Fail(Unavailable("the server is shutting down"));
  };
  Client client(server.port());
  const Reply reply = client.Post(kChat, ChatBody(R"(,"stream":true)"));
  EXPECT_EQ(reply.status, 200);
  const auto events = Events(reply.body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(Json::parse(events[2])["error"]["type"], "unavailable_error");
  EXPECT_TRUE(client.AtEnd());
}

TEST(Completions, FieldsReachTheHandler) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kChat,
                       ChatBody(R"(,"max_tokens":5,"temperature":0,"seed":7)"),
                       "X-Request-Timeout-Ms: 60000\r\nX-Request-Id: r1\r\n"));
  Started started = server.handler->Next();
  EXPECT_EQ(started.request.options.max_tokens, 5);
  EXPECT_EQ(started.request.options.temperature, 0);
  EXPECT_EQ(started.request.options.seed, 7u);
  EXPECT_EQ(started.request.trace->request_id, "r1");
  EXPECT_NE(started.request.deadline, kNever);
  EXPECT_TRUE(
      std::holds_alternative<handlers::ChatPrompt>(started.request.prompt));
  SayHello(std::move(started));
  EXPECT_EQ(client.Read().status, 200);
}

TEST(Completions, BadFieldsAre400AndNameTheField) {
  TestServer server;
  Client client(server.port());
  const Reply temperature = client.Post(kChat, ChatBody(R"(,"temperature":9)"));
  EXPECT_EQ(temperature.status, 400);
  EXPECT_EQ(Body(temperature)["error"]["param"], "temperature");
  for (const char* value : {"0", "-5", "ten", "1.5", "99999999999999999999"}) {
    const Reply reply =
        client.Post(kChat, ChatBody(""),
                    "X-Request-Timeout-Ms: " + std::string(value) + "\r\n");
    EXPECT_EQ(reply.status, 400) << value;
  }
  const Reply model = client.Post(
      kChat, R"({"model":"gpt","messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(Body(model)["error"]["code"], "model_not_found");
  EXPECT_EQ(Body(model)["error"]["param"], "model");
}

TEST(Completions, PromptsMayBeTextIdsOrListsOfEither) {
  TestServer server;
  Client client(server.port());
  const auto prompts_of = [&](const std::string& prompt, size_t count) {
    client.Send(PostText(kCompletions, "{\"prompt\":" + prompt + "}"));
    std::vector<Started> started;
    for (size_t i = 0; i < count; ++i) {
      started.push_back(server.handler->Next());
    }
    std::string seen;
    for (Started& one : started) {
      if (auto* text = std::get_if<handlers::TextPrompt>(&one.request.prompt)) {
        seen += "'" + text->text + "'";
      } else {
        for (int32_t id :
             std::get<handlers::TokenPrompt>(one.request.prompt).ids) {
          seen += std::to_string(id) + ",";
        }
      }
      seen += ";";
      SayHello(std::move(one));
    }
    const Json body = Body(client.Read());
    EXPECT_EQ(body["choices"].size(), count);
    return seen;
  };
  EXPECT_EQ(prompts_of("\"a\"", 1), "'a';");
  EXPECT_EQ(prompts_of("[1,2]", 1), "1,2,;");
  EXPECT_EQ(prompts_of("[\"a\",\"b\"]", 2), "'a';'b';");
  EXPECT_EQ(prompts_of("[[1],[2,3]]", 2), "1,;2,3,;");
}

TEST(Completions, BadPromptsAre400) {
  TestServer server;
  Client client(server.port());
  std::string many = "[\"a\"";
  for (int i = 0; i < 64; ++i) many += ",\"a\"";
  many += "]";
  for (const std::string& prompt :
       {std::string("[]"), std::string("7"), std::string("{}"),
        std::string("[1,\"a\"]"), std::string("[-1]"), std::string("[1.5]"),
        std::string("[[1],null]"), many}) {
    const Reply reply =
        client.Post(kCompletions, "{\"prompt\":" + prompt + "}");
    EXPECT_EQ(reply.status, 400) << prompt;
    EXPECT_EQ(
        Body(reply)["error"]["param"].get<std::string>().rfind("prompt", 0), 0u)
        << reply.body;
  }
  EXPECT_EQ(client.Post(kCompletions, "{}").status, 400);
}

TEST(Completions, OneFailingPromptFailsTheRequestAndStopsTheOthers) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kCompletions, R"({"prompt":["a","b"],"stream":true})"));
  Started first = server.handler->Next();
  Started second = server.handler->Next();
  first.Accept();
  first.Chunk("early");
  second.Fail(InvalidArgument("prompt is too long")
                  .At("prompt")
                  .Because("context_length_exceeded"));
  EXPECT_TRUE(first.WaitForStop());
  const Reply reply = client.Read();
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(Body(reply)["error"]["code"], "context_length_exceeded");
  first.Fail(Cancelled("stopped"));
}

TEST(Completions, UsageIsTheSumOfAllPrompts) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  const Json usage =
      Body(client.Post(kCompletions, R"({"prompt":["a","b"]})"))["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 6);
  EXPECT_EQ(usage["completion_tokens"], 4);
  EXPECT_EQ(usage["total_tokens"], 10);
}

TEST(Completions, FullHandlerPoolIs429AndProbesStillAnswer) {
  TestServer server;
  // Both pool threads are held, then the queue of 64 fills up.
  std::mutex mu;
  std::condition_variable changed;
  bool open = false;
  server.handler->script = [&](Started started) {
    std::unique_lock<std::mutex> lock(mu);
    changed.wait(lock, [&] { return open; });
    lock.unlock();
    SayHello(std::move(started));
  };
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 67; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->Send(PostText(kChat, ChatBody("")));
  }
  Client probe(server.port());
  EXPECT_EQ(probe.Get("/health").status, 200);
  EXPECT_EQ(probe.Get("/metrics").status, 200);
  {
    const std::lock_guard<std::mutex> lock(mu);
    open = true;
  }
  changed.notify_all();
  int refused = 0;
  for (auto& client : clients) {
    const int status = client->Read().status;
    EXPECT_TRUE(status == 200 || status == 429) << status;
    refused += status == 429 ? 1 : 0;
  }
  // 2 run and 64 wait at most; the probe shows that all 67 were read.
  EXPECT_GE(refused, 1);
}

TEST(Completions, LlamaTakesOnlyANegativeNPredictForNoLimit) {
  TestServer server;
  Client client(server.port());
  const std::pair<int, std::optional<int>> kLimits[] = {
      {-1, std::nullopt}, {0, 1}, {2, 2}};
  for (const auto& [asked, most] : kLimits) {
    const Json body = {{"prompt", Json::array({1})}, {"n_predict", asked}};
    client.Send(PostText("/completion", body.dump()));
    Started started = server.handler->Next();
    EXPECT_EQ(started.request.options.max_tokens, most) << asked;
    EXPECT_TRUE(started.request.options.clip_to_context);
    started.Accept();
    started.Chunk("x");
    started.End();
    EXPECT_EQ(Body(client.Read())["content"], asked == 0 ? "" : "x");
  }
}

TEST(Completions, MemoryThatIsNotThereEndsTheRequestAlone) {
  TestServer server;
  Client client(server.port());
  server.handler->script = [](const Started&) { throw std::bad_alloc(); };
  const Reply reply = client.Post(kChat, ChatBody(""));
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("has no memory for this request"),
            std::string::npos);
  server.handler->script = SayHello;
  EXPECT_EQ(client.Post(kChat, ChatBody("")).status, 200);
}

}  // namespace
}  // namespace millrace::server::http
