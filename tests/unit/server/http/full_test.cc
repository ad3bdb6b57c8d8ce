// A server whose connections are all taken: scrapers and probes are answered
// all the same.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/http/access.h"
#include "server/http/router.h"
#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

config::ServerSettings OneConnection() {
  config::ServerSettings settings = QuietSettings();
  settings.max_connections = 1;
  return settings;
}

// Of millrace_http_connections_refused_total.
std::string Refused(int port) {
  const std::string text = Client(port).Get("/metrics").body;
  const std::string name = "\nmillrace_http_connections_refused_total ";
  const size_t at = text.find(name) + name.size();
  return text.substr(at, text.find('\n', at) - at);
}

TEST(FullServer, RequestsOfModelsAre503) {
  TestServer server(OneConnection());
  Client first(server.port());
  EXPECT_EQ(first.Get("/health").status, 200);
  for (const std::string& request :
       {PostText("/v1/chat/completions", "{}"), GetText("/v1/models"),
        PostText("/health", "{}"), GetText("/"), GetText("/metricsx"),
        std::string("what?\r\n\r\n")}) {
    Client second(server.port());
    second.Send(request);
    const Reply reply = second.Read();
    EXPECT_EQ(reply.status, 503) << request;
    EXPECT_NE(reply.body.find("too_many_connections"), std::string::npos);
    EXPECT_NE(reply.Header("retry-after"), "");
    EXPECT_TRUE(second.AtEnd());
  }
  EXPECT_EQ(Refused(server.port()), "6");
  EXPECT_EQ(first.Get("/health").status, 200);
}

TEST(FullServer, ScrapesAndProbesAreAnsweredAndTheirConnectionsClosed) {
  TestServer server(OneConnection());
  Client first(server.port());
  EXPECT_EQ(first.Get("/health").status, 200);
  for (const char* path :
       {"/metrics", "/health", "/health/live", "/health/ready",
        "/v2/health/live", "/v2/health/ready", "/health?x=1"}) {
    Client second(server.port());
    const Reply reply = second.Get(path);
    EXPECT_EQ(reply.status, 200) << path;
    EXPECT_EQ(reply.Header("connection"), "close");
    EXPECT_TRUE(second.AtEnd());
  }
  EXPECT_EQ(Refused(server.port()), "0");
}

TEST(FullServer, WhoAsksNothingIsRefusedSoon) {
  TestServer server(OneConnection());
  Client first(server.port());
  EXPECT_EQ(first.Get("/health").status, 200);
  Client silent(server.port());
  EXPECT_EQ(silent.Read().status, 503);
  EXPECT_TRUE(silent.AtEnd());
  Client slow(server.port());
  slow.Send("GET /metr");
  EXPECT_EQ(slow.Read().status, 503);
  EXPECT_TRUE(slow.AtEnd());
}

TEST(FullServer, ThePortsOfMetricsAndManagementHavePlacesOfTheirOwn) {
  config::ServerSettings settings = OneConnection();
  settings.metrics_port = 0;
  settings.management_port = 0;
  TestServer server(settings);
  // All that the port of inference takes, and some that it closes.
  std::vector<std::unique_ptr<Client>> taken;
  for (int i = 0; i < 80; ++i) {
    taken.push_back(std::make_unique<Client>(server.port()));
  }
  Client scraper(server.http->metrics_port());
  Client manager(server.http->management_port());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(scraper.Get("/metrics").status, 200);
    EXPECT_EQ(manager.Get("/v2/logging").status, 200);
  }
}

TEST(FullServer, WhatIsAnsweredIsARoute) {
  for (const char* path :
       {"/metrics", "/health", "/health/live", "/health/ready",
        "/v2/health/live", "/v2/health/ready"}) {
    EXPECT_TRUE(AnsweredWhenFull("GET", path));
    EXPECT_FALSE(AnsweredWhenFull("POST", path));
    EXPECT_NE(FindRoute(ServingRoutes(), "GET", path).route, nullptr);
  }
  EXPECT_TRUE(AnsweredWhenFull("HEAD", "/ping"));
  EXPECT_FALSE(AnsweredWhenFull("GET", "/"));
}

}  // namespace
}  // namespace millrace::server::http
