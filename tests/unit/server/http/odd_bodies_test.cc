// Each field of the routes that complete chats, with values of wrong kinds: an
// answer, or a refusal in the words of that API, never an error of the server.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOdd[] = {"null",
                                "true",
                                "-1.5",
                                R"("x")",
                                "[]",
                                "[1]",
                                "[{}]",
                                "{}",
                                R"({"a": 1})",
                                R"({"type": 3})",
                                R"([{"type": "text"}])"};

struct Route {
  const char* path;
  const char* body;
};
constexpr Route kBodies[] = {
    {"/v1/chat/completions", R"({
      "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1",
          "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "x"}],
      "tools": [{"type": "function",
                 "function": {"name": "f", "parameters": {}}}],
      "tool_choice": {"type": "function", "function": {"name": "f"}},
      "parallel_tool_calls": true, "reasoning_effort": "low",
      "reasoning_format": "auto", "chat_template_kwargs": {}})"},
    {"/v1/messages", R"({
      "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [
          {"type": "thinking", "thinking": "Hm."},
          {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result",
          "tool_use_id": "1", "content": "x"}]}],
      "max_tokens": 1, "system": [{"type": "text", "text": "Be brief."}],
      "tools": [{"name": "f", "input_schema": {}}],
      "tool_choice": {"type": "tool", "name": "f",
                      "disable_parallel_tool_use": true},
      "stop_sequences": ["x"], "thinking": {"type": "enabled"},
      "chat_template_kwargs": {}})"},
    {"/v1/responses", R"({
      "input": [{"role": "user",
                 "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call", "call_id": "1", "name": "f",
         "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "x"}],
      "instructions": "Be brief.", "max_output_tokens": 1,
      "tools": [{"type": "function", "name": "f", "parameters": {}}],
      "tool_choice": {"type": "function", "name": "f"},
      "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"},
      "previous_response_id": null, "store": true, "metadata": {},
      "truncation": "disabled", "background": false})"},
    {"/api/chat", R"({
      "messages": [{"role": "user", "content": "Hi", "images": []},
        {"role": "assistant", "content": "", "tool_calls": [
          {"function": {"name": "f", "arguments": {}}}]},
        {"role": "tool", "content": "x", "tool_name": "f"}],
      "tools": [{"type": "function", "function": {"name": "f"}}],
      "stream": false, "think": false, "format": null,
      "options": {"num_predict": 1, "stop": ["x"]}})"},
    {"/api/generate", R"({
      "prompt": "Hi", "system": "x", "stream": false, "raw": false,
      "options": {"num_predict": 1}, "images": [], "context": null})"},
    {"/api/show", R"({"model": "tiny", "name": "tiny"})"},
    {"/completion", R"({
      "prompt": ["a", 1], "n_predict": 1, "stop": ["x"], "seed": 1,
      "logit_bias": [[1, 0.5]], "n_probs": 0, "return_tokens": false})"},
    {"/infill", R"({"input_prefix": "a", "input_suffix": "b"})"},
};

// Pointers to all values inside.
void Places(const Json& value, const Json::json_pointer& here,
            std::vector<Json::json_pointer>& places) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      places.push_back(here / key);
      Places(inner, here / key, places);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      places.push_back(here / i);
      Places(value[i], here / i, places);
    }
  }
}

void Check(Client& client, const Route& route, const std::string& body) {
  const Reply reply = client.Post(route.path, body);
  const std::string what = std::string(route.path) + " " + body;
  ASSERT_TRUE(reply.status == 200 || reply.status == 400 || reply.status == 404)
      << reply.status << " " << what << reply.body;
  if (reply.status == 200) return;
  const Json error = Json::parse(reply.body)["error"];
  if (std::string(route.path).starts_with("/api/")) {
    EXPECT_TRUE(error.is_string()) << what;
  } else {
    EXPECT_FALSE(error["message"].get<std::string>().empty()) << what;
    EXPECT_TRUE(error["type"].is_string()) << what;
  }
}

TEST(OddBodies, AByteNowAndThenIs408) {
  config::ServerSettings settings = QuietSettings();
  settings.header_timeout_ms = 200;
  TestServer server(settings);
  Client client(server.port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      "Content-Length: 1000000\r\n\r\n{");
  // Each byte comes long before the time-out of the one before.
  std::jthread sender([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      client.Send(" ");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const Reply reply = client.Read();
  EXPECT_EQ(reply.status, 408);
  EXPECT_NE(reply.body.find("the least is 819"), std::string::npos)
      << reply.body;
}

TEST(OddBodies, AreAnsweredOrRefused) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  for (const Route& route : kBodies) {
    const Json body = Json::parse(route.body);
    const Reply plain = client.Post(route.path, body.dump());
    EXPECT_EQ(plain.status, std::string(route.path) == "/infill" ? 400 : 200)
        << route.path << plain.body;
    std::vector<Json::json_pointer> places;
    Places(body, Json::json_pointer(), places);
    for (const auto& place : places) {
      for (const char* odd : kOdd) {
        Json changed = body;
        changed[place] = Json::parse(odd);
        Check(client, route, changed.dump());
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::server::http
