// llama.cpp's /completion: which `prompt` is one and which is several, and
// their answers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCompletion[] = "/completion";

std::string Ask(const std::string& prompt, const std::string& more = "") {
  return "{\"prompt\":" + prompt + more + "}";
}

// The data of each event.
std::vector<Json> Events(const std::string& body) {
  std::vector<Json> events;
  size_t at = 0;
  while (body.compare(at, 6, "data: ") == 0) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    events.push_back(Json::parse(body.substr(at + 6, end - at - 6)));
    at = end + 2;
  }
  EXPECT_EQ(at, body.size()) << "left over: " << body.substr(at);
  return events;
}

// Of the prompt as the handler got it.
std::string Seen(const handlers::GenerateRequest& request) {
  if (const auto* text = std::get_if<handlers::TextPrompt>(&request.prompt)) {
    return "'" + text->text + "'";
  }
  std::string seen;
  for (int32_t id : std::get<handlers::TokenPrompt>(request.prompt).ids) {
    seen += std::to_string(id) + ",";
  }
  return seen;
}

// In the harness id 1 begins a prompt, and a letter is one token: its code.
TEST(LlamaCompletion, ListsAreOnePromptWhereTheyHoldAnId) {
  TestServer server;
  Client client(server.port());
  struct Case {
    const char* prompt;
    std::vector<std::string> seen;
  };
  const std::vector<Case> cases = {
      {R"("ab")", {"1,97,98,"}},
      {R"([7,8])", {"7,8,"}},
      {R"([7,"a"])", {"7,97,"}},
      {R"(["a",7,"b"])", {"1,97,7,98,"}},
      {R"(["a"])", {"1,97,"}},
      {R"(["a","b"])", {"1,97,", "1,98,"}},
      {R"([[7,8],[9]])", {"7,8,", "9,"}},
      {R"(["a",[7,"b"],[8]])", {"1,97,", "7,98,", "8,"}},
      {R"({"prompt_string":"a"})", {"'a'"}},
      {R"([{"prompt_string":"a"},"b"])", {"'a'", "1,98,"}},
  };
  for (const Case& one : cases) {
    client.Send(PostText(kCompletion, Ask(one.prompt)));
    std::vector<Started> started;
    std::vector<std::string> seen;
    for (size_t i = 0; i < one.seen.size(); ++i) {
      started.push_back(server.handler->Next());
      seen.push_back(Seen(started.back().request));
      EXPECT_TRUE(started.back().request.options.clip_to_context);
    }
    EXPECT_EQ(seen, one.seen) << one.prompt;
    for (Started& each : started) SayHello(std::move(each));
    const Json body = Json::parse(client.Read().body);
    // A list of one is answered as if it were none.
    ASSERT_EQ(body.is_array(), one.seen.size() > 1) << one.prompt;
    EXPECT_TRUE(!body.is_array() || body.size() == one.seen.size());
  }
}

TEST(LlamaCompletion, WhatWouldGrowIsRefused) {
  TestServer server;
  Client client(server.port());
  const auto asked = [&](const std::string& body) {
    client.Send(PostText(kCompletion, body));
    const auto answer = client.Read();
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer.body;
  };
  std::string pairs = "[0,1]";
  for (int i = 1; i <= 1024; ++i) pairs += ",[" + std::to_string(i) + ",1]";
  EXPECT_NE(asked(Ask("\"a\"", ",\"logit_bias\":[" + pairs + "]"))
                .find("at most 1024"),
            std::string::npos);
  // A text stands for each of its tokens.
  std::string text;
  for (int i = 0; i < 1025; ++i) text += static_cast<char>('a' + i % 26);
  EXPECT_NE(asked(Ask("\"a\"", ",\"logit_bias\":{\"" + text + "\":1}"))
                .find("at most 1024"),
            std::string::npos);
  // Each completion has a copy of the prompt.
  const std::string long_prompt =
      "{\"prompt_string\":\"" + std::string(1100 << 10, 'a') + "\"}";
  EXPECT_NE(asked(Ask(long_prompt, ",\"n_cmpl\":64")).find("bytes in all"),
            std::string::npos);
}

TEST(LlamaCompletion, AStreamHasTokensWithoutText) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(
      kCompletion, Ask("\"a\"", ",\"stream\":true,\"return_tokens\":true")));
  Started started = server.handler->Next();
  started.Accept();
  const auto add = [&](const char* text, std::vector<int32_t> ids) {
    handlers::OutputDelta delta;
    delta.text = text;
    delta.num_tokens = 1;
    delta.ids = std::move(ids);
    started.sink->OnDelta(std::move(delta));
  };
  add("", {});  // half a character: told with what follows
  add("b", {98});
  add("", {2});  // a token that is not shown
  started.usage.completion_tokens = 3;
  started.End();
  const std::vector<Json> events = Events(client.Read().body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["tokens"], Json({98}));
  EXPECT_EQ(events[0]["tokens_predicted"], 2);
  EXPECT_EQ(events[1]["tokens"], Json({2}));
  EXPECT_EQ(events[1]["content"], "");
  EXPECT_EQ(events[1]["tokens_predicted"], 3);
}

TEST(LlamaCompletion, AnswersStandInTheOrderOfThePrompts) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kCompletion, Ask(R"(["a",[7,"b"]])")));
  Started first = server.handler->Next();
  Started second = server.handler->Next();
  second.Accept(2);
  second.Chunk("of b");
  second.End();  // before the first has begun
  first.Accept(1);
  first.Chunk("of");
  first.Chunk(" a");
  first.End(handlers::FinishReason::kLength);
  const Json body = Json::parse(client.Read().body);
  ASSERT_EQ(body.size(), 2u);
  EXPECT_EQ(body[0]["index"], 0);
  EXPECT_EQ(body[0]["content"], "of a");
  EXPECT_EQ(body[0]["prompt"], "a");
  EXPECT_EQ(body[0]["stop_type"], "limit");
  EXPECT_EQ(body[0]["tokens_predicted"], 2);
  EXPECT_EQ(body[1]["index"], 1);
  EXPECT_EQ(body[1]["content"], "of b");
  EXPECT_EQ(body[1]["prompt"], Json::parse(R"([7,"b"])"));
  EXPECT_EQ(body[1]["stop_type"], "eos");
  EXPECT_EQ(body[1]["tokens_evaluated"], 2);
  // Its own, not the sum.
  EXPECT_EQ(body[1]["timings"]["predicted_n"], 1);
}

TEST(LlamaCompletion, EventsOfAStreamNameTheirPrompt) {
  TestServer server;
  Client client(server.port());
  client.Send(PostText(kCompletion, Ask(R"(["a","b"])", R"(,"stream":true)")));
  Started first = server.handler->Next();
  Started second = server.handler->Next();
  first.Accept();
  first.Chunk("x");
  second.Accept();
  second.Chunk("y");
  first.Chunk("z");
  second.End();
  first.End();
  const auto events = Events(client.Read().body);
  std::string told;
  for (const Json& event : events) {
    told += event["index"].dump() + event["content"].get<std::string>() +
            (event["stop"].get<bool>() ? ". " : " ");
  }
  EXPECT_EQ(told, "0x 1y 0z 1. 0. ");
}

TEST(LlamaCompletion, OneFailingPromptFailsTheRequestAndStopsTheOthers) {
  TestServer server;
  Client client(server.port());
  for (const char* more : {"", R"(,"stream":true)"}) {
    client.Send(PostText(kCompletion, Ask(R"(["a","b"])", more)));
    Started first = server.handler->Next();
    Started second = server.handler->Next();
    first.Accept();
    first.Chunk("early");
    second.Fail(ResourceExhausted("the queue is full").Because("queue_full"));
    EXPECT_TRUE(first.WaitForStop());
    const Reply reply = client.Read();
    EXPECT_EQ(reply.status, 429) << more;
    EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "queue_full");
    first.Fail(Cancelled("stopped"));
  }
}

TEST(LlamaCompletion, BadPromptsAre400AndSayWhere) {
  TestServer server;
  Client client(server.port());
  std::string many = "[\"a\"";
  for (int i = 0; i < 64; ++i) many += ",\"a\"";
  many += "]";
  const std::pair<std::string, const char*> cases[] = {
      {"7", "prompt"},
      {"null", "prompt"},
      {"[]", "prompt"},
      {many, "prompt"},
      {"[-1]", "prompt[0]"},
      {"[1.5]", "prompt[0]"},
      {"[[1],[]]", "prompt[1]"},
      {"[\"a\",null]", "prompt[1]"},
      {"[[1],2]", "prompt[1]"},
      {"[\"a\",[1,[2]]]", "prompt[1][1]"},
      {"[\"a\",{}]", "prompt[1].prompt_string"},
      {"[\"a\",{\"prompt_string\":\"b\",\"multimodal_data\":[7]}]",
       "prompt[1].multimodal_data[0]"},
  };
  for (const auto& [prompt, field] : cases) {
    const Reply reply = client.Post(kCompletion, Ask(prompt));
    EXPECT_EQ(reply.status, 400) << prompt;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], field) << prompt;
  }
}

}  // namespace
}  // namespace millrace::server::http
