// Pages of other origins, for which a browser sends some requests unasked.
#include "server/http/origin.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

TEST(Origin, OnesOwnAndTheAllowedOne) {
  config::ServerSettings settings;
  HttpRequest head;
  const auto allowed = [&](const std::string& origin) {
    head.headers = {{"host", "ours:8000"}};
    if (!origin.empty()) head.headers.emplace_back("origin", origin);
    return IsAllowedOrigin(settings, head);
  };
  EXPECT_TRUE(allowed(""));
  EXPECT_TRUE(allowed("http://ours:8000"));
  EXPECT_TRUE(allowed("https://ours:8000"));
  for (const char* other : {"http://ours", "http://ours:80", "http://a", "null",
                            "ours:8000", "http://ours:8000.a"}) {
    EXPECT_FALSE(allowed(other)) << other;
  }
  settings.cors_allow_origin = "http://a";
  EXPECT_TRUE(allowed("http://a"));
  EXPECT_FALSE(allowed("http://b"));
  settings.cors_allow_origin = "*";
  EXPECT_TRUE(allowed("http://b"));
}

TEST(Origin, ABodyWithoutATypeIsNotTakenFromAnyPage) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  const auto ask = [&](const char* path, const char* body,
                       const std::string& headers) {
    return client.Post(path, body, headers).status;
  };
  const char* const chat = "/v1/chat/completions";
  const char* const hi = R"({"messages":[{"role":"user","content":"Hi"}]})";
  EXPECT_EQ(ask(chat, hi, ""), 200);
  EXPECT_EQ(ask(chat, hi, "Origin: http://a\r\n"), 415);
  // The client's Host.
  EXPECT_EQ(ask(chat, hi, "Origin: http://x\r\n"), 200);
  EXPECT_EQ(
      ask(chat, hi, "Origin: http://a\r\nContent-Type: application/json\r\n"),
      200);
  const std::string form =
      "Content-Type: application/x-www-form-urlencoded\r\n";
  EXPECT_EQ(ask(chat, hi, form + "Origin: http://a\r\n"), 415);
  EXPECT_EQ(ask(chat, hi, form + "Origin: http://x\r\n"), 200);
  const char* const unload = "/v2/repository/models/tiny/unload";
  EXPECT_EQ(ask(unload, "", "Origin: http://a\r\n"), 415);
}

}  // namespace
}  // namespace millrace::server::http
