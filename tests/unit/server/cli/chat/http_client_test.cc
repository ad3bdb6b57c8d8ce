#include "server/cli/chat/http_client.h"

#include <gtest/gtest.h>

#include "tests/unit/server/cli/chat/scripted_server.h"

namespace millrace::server {
namespace {

TEST(HttpUrl, HostPortAndPrefixAreTakenApart) {
  const auto plain = ParseHttpUrl("http://localhost:8000");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, "8000");
  EXPECT_EQ(plain->prefix, "");
  EXPECT_EQ(plain->authority, "localhost:8000");
  const auto six = ParseHttpUrl("http://[::1]:9/openai/");
  ASSERT_TRUE(six.ok());
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, "9");
  EXPECT_EQ(six->prefix, "/openai");
  EXPECT_EQ(six->authority, "[::1]:9");
  EXPECT_EQ(ParseHttpUrl("example.org")->port, "80");
  EXPECT_FALSE(ParseHttpUrl("example.org")->is_tls);
  EXPECT_EQ(ParseHttpUrl("https://example.org")->port, "443");
  EXPECT_TRUE(ParseHttpUrl("https://example.org:8443")->is_tls);
}

TEST(HttpUrl, NonsenseIsRefused) {
  for (const char* url :
       {"", "http://", "ftp//a b", "http://a:0", "http://a:65536", "http://a:b",
        "http://a b", "http://::1", "http://u@h", "http://a\r\nX: y",
        "http://a/?q"}) {
    EXPECT_FALSE(ParseHttpUrl(url).ok()) << url;
  }
}

TEST(HttpClient, BodyArrivesWithItsStatus) {
  ScriptedServer server({JsonReply(404, "{}")});
  std::string body;
  int seen = 0;
  const auto status = Exchange(
      ParseHttpUrl(server.url()).value(), {.target = "/x", .api_key = "secret"},
      {.on_body = [&](int code, std::string_view bytes) {
        seen = code;
        body += bytes;
      }});
  EXPECT_EQ(status.value(), 404);
  EXPECT_EQ(seen, 404);
  EXPECT_EQ(body, "{}");
  EXPECT_TRUE(server.requests()[0].starts_with("GET /x HTTP/1.1\r\nHost: "));
  EXPECT_NE(server.requests()[0].find("Authorization: Bearer secret\r\n"),
            std::string::npos);
}

TEST(HttpClient, BrokenAnswersAreSentences) {
  ScriptedServer server({{{"SSH-2.0-x\r\n\r\n"}},
                         {{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"}},
                         {{}}});
  for (int i = 0; i < 3; ++i) {
    const auto status =
        Exchange(ParseHttpUrl(server.url()).value(), {.target = "/"},
                 {.on_body = [](int, std::string_view) {}});
    EXPECT_EQ(status.status().code(), StatusCode::kUnavailable) << i;
  }
}

TEST(HttpClient, NobodyThereSaysHowToStartOne) {
  std::string url;
  { url = ScriptedServer({}).url(); }  // closed again
  const auto status = Exchange(ParseHttpUrl(url).value(), {.target = "/"}, {});
  EXPECT_EQ(status.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(status.status().message().find("millrace serve"),
            std::string::npos);
}

TEST(HttpClient, CancelEndsAWait) {
  ScriptedServer server({{{"HTTP/1.1 200 OK\r\n"}, /*hang=*/true}});
  int asked = 0;
  const auto status =
      Exchange(ParseHttpUrl(server.url()).value(), {.target = "/"},
               {.cancelled = [&] { return ++asked > 3; }});
  EXPECT_EQ(status.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace millrace::server
