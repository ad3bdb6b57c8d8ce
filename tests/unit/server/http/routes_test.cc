// Routes as a client sees them: who may call what, and what comes back.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "server/http/content_coding.h"
#include "server/http/router.h"
#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kHi[] = R"({"messages":[{"role":"user","content":"hi"}]})";

Json Body(const Reply& reply) {
  return Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
}

TEST(Router, FindsPatternsAndParameters) {
  const auto routes = ServingRoutes();
  EXPECT_EQ(FindRoute(routes, "GET", "/health").route->pattern, "/health");
  EXPECT_EQ(FindRoute(routes, "HEAD", "/health").route->pattern, "/health");
  const RouteMatch model = FindRoute(routes, "GET", "/v1/models/org/a:b");
  EXPECT_EQ(model.route->pattern, "/v1/models/{id}");
  EXPECT_EQ(model.params, std::vector<std::string>{"org/a:b"});
  const RouteMatch ready = FindRoute(routes, "GET", "/v2/models/m/ready");
  EXPECT_EQ(ready.route->pattern, "/v2/models/{id}/ready");
  EXPECT_EQ(ready.params, std::vector<std::string>{"m"});
  // A name may look like a pattern.
  const RouteMatch braces = FindRoute(routes, "POST", "/v2/models/{id}/infer");
  EXPECT_EQ(braces.params, std::vector<std::string>{"{id}"});
  EXPECT_EQ(FindRoute(routes, "POST", "/openai/v1/completions").route->pattern,
            "/v1/completions");
}

TEST(Router, KnowsWhatItDoesNotServe) {
  const auto routes = ServingRoutes();
  for (const char* path : {"", "health", "/health/", "/v1", "/v1/models/",
                           "/openai/health", "//health", "/v2/models//ready"}) {
    const RouteMatch match = FindRoute(routes, "GET", path);
    EXPECT_TRUE(match.route == nullptr ||
                match.route->pattern == "/v2/models/{id}")
        << path;
  }
  const RouteMatch wrong = FindRoute(routes, "DELETE", "/health");
  EXPECT_EQ(wrong.route, nullptr);
  EXPECT_EQ(wrong.allow, "GET, HEAD, OPTIONS");
}

TEST(Routes, HealthFollowsTheServersState) {
  TestServer server;
  Client client(server.port());
  server.repository.SetState(ServerState::kLoading);
  Reply reply = client.Get("/health");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.body,
            "{\"status\":\"loading\",\"models_ready\":0,"
            "\"models_expected\":0}");
  EXPECT_EQ(reply.Header("retry-after"), "1");
  for (const char* path : {"/health/live", "/v2/health/live"}) {
    EXPECT_EQ(client.Get(path).status, 200) << path;
  }
  reply = client.Post(kChat, kHi);
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.Header("retry-after"), "1");
  server.repository.SetState(ServerState::kReady);
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/v2/health/ready").body, "{\"ready\":true}");
  server.repository.SetState(ServerState::kDraining);
  EXPECT_EQ(client.Get("/health").body, "{\"status\":\"draining\"}");
}

TEST(Routes, ProbesAndRefusalsTellHowFarALoadIs) {
  TestServer server;
  Client client(server.port());
  server.repository.SetState(ServerState::kLoading);
  server.progress.Expect(2);
  server.progress.CountReady();
  LoadProgress::Load load(&server.progress, "big", "1", "big.gguf");
  for (const char* path : {"/health", "/health/ready", "/v2/health/ready"}) {
    const Json body = Body(client.Get(path));
    EXPECT_EQ(body["status"], "loading") << path;
    EXPECT_EQ(body["models_ready"], 1);
    EXPECT_EQ(body["models_expected"], 2);
    EXPECT_EQ(body["loading"]["model"], "big");
    EXPECT_FALSE(body["loading"].contains("progress")) << "not known yet";
  }
  load.Report(0.25);
  EXPECT_EQ(Body(client.Get("/health"))["loading"]["progress"], 0.25);
  const Reply refused = client.Post(
      kChat, R"({"model":"big","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.Header("retry-after"), "");
  EXPECT_EQ(Body(refused)["error"]["code"], "loading");
  EXPECT_EQ(Body(refused)["error"]["message"],
            "the model 'big' is not served yet, the server is loading its "
            "models (1 of 2 models are ready, 'big' is at 25 %); try again "
            "soon");
  // Its further names are not known before it is loaded.
  EXPECT_EQ(client.Get("/v1/models/other-name").status, 503);
  EXPECT_EQ(client.Get("/v2/models/big/ready").status, 503);
}

TEST(Routes, UnknownPathIs404WithAnErrorObject) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.Get("/nowhere");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.Header("content-type"), "application/json");
  const Json error = Body(reply)["error"];
  EXPECT_EQ(error["type"], "not_found_error");
  EXPECT_EQ(error["code"], "route_not_found");
  EXPECT_TRUE(error["param"].is_null());
  EXPECT_EQ(error["message"],
            "there is nothing at '/nowhere'; GET /openapi.json lists the "
            "routes");
}

TEST(Routes, UnknownPathNamesTheNearestRoute) {
  const auto routes = ServingRoutes();
  const std::pair<const char*, const char*> mistakes[] = {
      {"/v1/chat/completion", "/v1/chat/completions"},
      {"/chat/completion", "/chat/completions"},
      {"/v1/completions/", "/v1/completions"},
      {"/v1/model", "/v1/models"},
      {"/v2/model/resnet/infer", "/v2/models/{id}/infer"},
      {"/healthz", "/health"},
  };
  for (const auto& [path, pattern] : mistakes) {
    const Route* near = NearestRoute(routes, path);
    ASSERT_NE(near, nullptr) << path;
    EXPECT_EQ(near->pattern, pattern) << path;
  }
  for (const char* path :
       {"/favicon.ico", "/wp-login.php", "/a/b/c/d/e/f", "/v1", "/x"}) {
    EXPECT_EQ(NearestRoute(routes, path), nullptr) << path;
  }
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(Body(client.Post("/v1/chat/completion", kHi))["error"]["message"],
            "there is nothing at '/v1/chat/completion'; did you mean POST "
            "/v1/chat/completions? GET /openapi.json lists the routes");
}

TEST(Routes, FrontPageListsRoutesAndModels) {
  TestServer server;
  Client client(server.port());
  const Reply text = client.Get("/");
  EXPECT_EQ(text.Header("content-type"), "text/plain; charset=utf-8");
  const Reply html = client.Get("/", "Accept: text/html,*/*;q=0.8\r\n");
  EXPECT_EQ(html.Header("content-type"), "text/html; charset=utf-8");
  for (const Reply& page : {text, html}) {
    EXPECT_EQ(page.status, 200);
    EXPECT_NE(page.body.find("tiny"), std::string::npos);
    for (const Route& route : ServingRoutes()) {
      EXPECT_NE(page.body.find(route.pattern), std::string::npos)
          << route.pattern;
    }
  }
  EXPECT_EQ(text.body.find('<'), std::string::npos);
}

TEST(Routes, NamesOfModelsAreNoMarkup) {
  TestServer server;
  server.repository.Add(std::make_shared<LanguageModel>(
      ModelFacts{.id = "<script>"}, TextFacts{}, nullptr, nullptr));
  Client client(server.port());
  const Reply html = client.Get("/", "Accept: text/html\r\n");
  EXPECT_EQ(html.body.find("<script>"), std::string::npos);
  EXPECT_NE(html.body.find("&lt;script&gt;"), std::string::npos);
}

TEST(Routes, OpenApiDescribesEachRoute) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.Get("/openapi.json");
  ASSERT_EQ(reply.status, 200);
  const Json api = Body(reply);
  EXPECT_EQ(api["openapi"], "3.1.0");
  std::set<std::string> ids;
  for (const Route& route : ServingRoutes()) {
    const std::string method = route.method == "GET"    ? "get"
                               : route.method == "POST" ? "post"
                                                        : "delete";
    const Json& operation = api["paths"][std::string(route.pattern)][method];
    EXPECT_FALSE(operation["summary"].empty()) << route.pattern;
    EXPECT_TRUE(ids.insert(operation["operationId"]).second) << route.pattern;
  }
  // Every reference leads somewhere.
  const std::string mark = "\"$ref\":\"#";
  size_t at = reply.body.find(mark);
  while (at != std::string::npos) {
    at += mark.size();
    const std::string pointer =
        reply.body.substr(at, reply.body.find('"', at) - at);
    EXPECT_TRUE(api.contains(Json::json_pointer(pointer))) << pointer;
    at = reply.body.find(mark, at);
  }
  const Json& chat = api["components"]["schemas"]["ChatRequest"]["properties"];
  EXPECT_EQ(chat["temperature"]["maximum"], 2);
  EXPECT_EQ(chat["top_p"]["exclusiveMinimum"], 0);
  EXPECT_EQ(chat["n"]["minimum"], 1);
  EXPECT_FALSE(chat.contains("echo"));
}

TEST(Routes, WrongMethodIs405WithAllow) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.Get(kChat);
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.Header("allow"), "POST, OPTIONS");
  const Reply infer = client.Get("/v2/models/tiny/infer");
  EXPECT_EQ(infer.status, 405);
  EXPECT_EQ(infer.Header("allow"), "POST, OPTIONS");
  const Reply config = client.Post("/v2/models/tiny/config", "{}");
  EXPECT_EQ(config.status, 405);
  EXPECT_EQ(config.Header("allow"), "GET, HEAD, OPTIONS");
}

TEST(Routes, ARefusalThatAnotherTryDoesNotChangeHasNoRetryAfter) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.Post("/v2/repository/models/tiny/load", "{}");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.Header("retry-after"), "");
}

TEST(Routes, WhatAModelDoesNotHaveIsNoOtherModel) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.Get("/v2/models/tiny/metrics");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(Body(reply)["error"],
            "the model 'tiny' has nothing at '/metrics'; it has /config, "
            "/generate, /generate_stream, /infer, /ready, /stats, "
            "/trace/setting and /versions/{version}");
  EXPECT_EQ(Body(client.Get("/v2/models/tiny/versions/1/foo"))["error"],
            "version '1' of the model 'tiny' has nothing at '/foo'; it has "
            "/config, /infer, /ready and /stats");
  const std::string other =
      Body(client.Get("/v2/models/org/other"))["error"].get<std::string>();
  EXPECT_NE(other.find("'org/other' does not exist"), std::string::npos)
      << other;
}

TEST(Routes, BodiesMustBeJson) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  EXPECT_EQ(client.Post(kChat, kHi, "Content-Type: text/plain\r\n").status,
            415);
  EXPECT_EQ(client.Post(kChat, kHi, "").status, 200);
  const std::string curl =
      "Content-Type: application/x-www-form-urlencoded\r\n";
  EXPECT_EQ(client.Post(kChat, kHi, curl).status, 200);
  // A form that a page of another origin sends.
  EXPECT_EQ(client.Post(kChat, kHi, curl + "Origin: http://a\r\n").status, 415);
  EXPECT_EQ(
      client
          .Post(kChat, kHi, "Content-Type: Application/JSON; charset=utf-8\r\n")
          .status,
      200);
  EXPECT_EQ(client.Post(kChat, kHi, "Content-Encoding: br\r\n").status, 415);
  EXPECT_EQ(client.Post(kChat, kHi, "Content-Encoding: gzip\r\n").status, 400);
  EXPECT_EQ(client
                .Post(kChat, *Encoded(kHi, ContentCoding::kGzip),
                      "Content-Encoding: gzip\r\n")
                .status,
            200);
  const Reply broken = client.Post(kChat, "{\"messages\":");
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(Body(broken)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(client.Post(kChat, "[]").status, 400);
  EXPECT_EQ(client.Post(kChat, "").status, 400);
}

TEST(Routes, RequestIdIsEchoedOrMade) {
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(
      client.Get("/health", "X-Request-Id: abc-1\r\n").Header("x-request-id"),
      "abc-1");
  const std::string made = client.Get("/health").Header("x-request-id");
  EXPECT_EQ(made.size(), 28u);
  EXPECT_NE(made, client.Get("/health").Header("x-request-id"));
  const std::string with_space =
      client.Get("/health", "X-Request-Id: a b\r\n").Header("x-request-id");
  EXPECT_EQ(with_space.rfind("req-", 0), 0u);
  const std::string too_long =
      client.Get("/health", "X-Request-Id: " + std::string(129, 'a') + "\r\n")
          .Header("x-request-id");
  EXPECT_EQ(too_long.rfind("req-", 0), 0u);
}

TEST(Routes, KeysGuardAllButProbesAndMetrics) {
  config::ServerSettings settings = QuietSettings();
  settings.api_key = "sesame,second";
  TestServer server(settings);
  server.handler->script = SayHello;
  Client client(server.port());
  for (const char* path :
       {"/health", "/v2/health/live", "/version", "/metrics"}) {
    EXPECT_EQ(client.Get(path).status, 200) << path;
  }
  const Reply refused = client.Get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_NE(refused.Header("www-authenticate"), "");
  EXPECT_EQ(Body(refused)["error"]["type"], "authentication_error");
  EXPECT_EQ(client.Get("/nowhere").status, 401);
  EXPECT_EQ(client.Get("/v1/models", "Authorization: Bearer wrong\r\n").status,
            401);
  EXPECT_EQ(client.Get("/v1/models", "Authorization: bearer second\r\n").status,
            200);
  EXPECT_EQ(client.Get("/v1/models", "X-Api-Key: sesame\r\n").status, 200);
  EXPECT_EQ(client.Post(kChat, kHi, "X-Api-Key: sesame\r\n").status, 200);
}

TEST(Routes, CorsIsOffUnlessSet) {
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(client.Get("/health", "Origin: http://a\r\n")
                .Header("access-control-allow-origin"),
            "");
}

TEST(Routes, CorsAnswersPreflightsWithoutAKey) {
  config::ServerSettings settings = QuietSettings();
  settings.cors_allow_origin = "http://a";
  settings.api_key = "sesame";
  TestServer server(settings);
  Client client(server.port());
  client.Send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      "Origin: http://a\r\n\r\n");
  const Reply preflight = client.Read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.Header("access-control-allow-origin"), "http://a");
  EXPECT_EQ(preflight.Header("access-control-allow-methods"), "POST, OPTIONS");
  EXPECT_EQ(client.Get("/health").Header("access-control-allow-origin"),
            "http://a");
}

TEST(Routes, MetricsCountRequestsByRouteAndOutcome) {
  TestServer server;
  server.handler->script = SayHello;
  Client client(server.port());
  client.Post(kChat, kHi);
  client.Post(kChat, "{}");
  client.Get("/nowhere");
  const Reply reply = client.Get("/metrics");
  EXPECT_EQ(reply.Header("content-type"),
            "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"millrace_requests_total{outcome=\"ok\",route=\"/v1/chat/"
        "completions\"} 1",
        "millrace_requests_total{outcome=\"client_error\",route=\"/v1/chat/"
        "completions\"} 1",
        "millrace_requests_total{outcome=\"client_error\",route=\"none\"} 1",
        "millrace_http_connections 1",
        "millrace_request_duration_seconds_count{route=\"/v1/chat/"
        "completions\"} 2"}) {
    EXPECT_NE(reply.body.find(line), std::string::npos) << line;
  }
}

TEST(Routes, SeriesOfARouteAppearWithItsFirstRequest) {
  TestServer server;
  Client client(server.port());
  const std::string before = client.Get("/metrics").body;
  EXPECT_EQ(before.find("/v1/models"), std::string::npos);
  EXPECT_NE(before.find("millrace_requests_total{outcome=\"error\",route=\"/v1/"
                        "chat/completions\"} 0"),
            std::string::npos);
  client.Get("/v1/models");
  const std::string after = client.Get("/metrics").body;
  for (const char* line :
       {"millrace_requests_total{outcome=\"ok\",route=\"/v1/models\"} 1",
        "millrace_requests_total{outcome=\"error\",route=\"/v1/models\"} 0"}) {
    EXPECT_NE(after.find(line), std::string::npos) << line;
  }
}

TEST(Routes, MetricsPortServesMetricsAlone) {
  config::ServerSettings settings = QuietSettings();
  settings.metrics_port = 0;
  TestServer server(settings);
  ASSERT_NE(server.http->metrics_port(), server.port());
  Client client(server.http->metrics_port());
  EXPECT_EQ(client.Get("/metrics").status, 200);
  const Reply other = client.Get("/v1/models");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(Body(other)["error"]["message"],
            "there is nothing at '/v1/models'; this port serves GET /metrics, "
            "GET /health");
}

TEST(Routes, ModelsAreListedUnderEachName) {
  TestServer server;
  Client client(server.port());
  const Json list = Body(client.Get("/v1/models"));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][1]["id"], "tiny-chat");
  EXPECT_EQ(list["data"][1]["root"], "tiny");
  const Json one = Body(client.Get("/openai/v1/models/tiny-chat"));
  EXPECT_EQ(one["max_model_len"], 128);
  EXPECT_EQ(one["meta"]["n_ctx_train"], 2048);
  const Reply missing = client.Get("/v1/models/other");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Body(missing)["error"]["code"], "model_not_found");
}

TEST(Routes, OpenInferenceMetadata) {
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(Body(client.Get("/v2"))["name"], "millrace");
  EXPECT_EQ(Body(client.Get("/v2/models/tiny"))["versions"][0], "1");
  EXPECT_EQ(Body(client.Get("/v2/models/tiny/ready"))["ready"], true);
  const Reply missing = client.Get("/v2/models/other");
  EXPECT_EQ(missing.status, 404);
  EXPECT_TRUE(Body(missing)["error"].is_string());
}

TEST(Routes, TokenizeTakesBothShapes) {
  TestServer server;
  Client client(server.port());
  const Json llama =
      Body(client.Post("/tokenize", R"({"content":"ab","with_pieces":true})"));
  EXPECT_EQ(llama["tokens"],
            Json::parse(R"([{"id":97,"piece":"a"},{"id":98,"piece":"b"}])"));
  const Json vllm = Body(client.Post("/tokenize", R"({"prompt":"ab"})"));
  EXPECT_EQ(vllm["tokens"], Json::parse("[1,97,98]"));
  EXPECT_EQ(vllm["count"], 3);
  EXPECT_EQ(vllm["max_model_len"], 128);
  const Json chat = Body(client.Post("/tokenize", kHi));
  EXPECT_EQ(chat["count"], 8);  // "<user>hi"
  EXPECT_EQ(client.Post("/tokenize", "{}").status, 400);
  const Json bytes = Body(client.Post(
      "/tokenize", "{\"content\":\"\xc3\xa9\",\"with_pieces\":true}"));
  EXPECT_EQ(bytes["tokens"][0]["piece"], Json::parse("[195]"));
}

TEST(Routes, DetokenizeAndApplyTemplate) {
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(
      Body(client.Post("/detokenize", R"({"tokens":[97,98]})"))["content"],
      "ab");
  const Reply wrong = client.Post("/detokenize", R"({"tokens":[97,"x"]})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(Body(wrong)["error"]["param"], "tokens[1]");
  EXPECT_EQ(Body(client.Post("/apply-template", kHi))["prompt"], "<user>hi");
}

TEST(Routes, APreflightAllowsTheHeadersThatABrowserNames) {
  config::ServerSettings settings = QuietSettings();
  settings.cors_allow_origin = "*";
  TestServer server(settings);
  Client client(server.port());
  const auto allowed = [&client](const std::string& wanted) {
    client.Send(
        "OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n"
        "Access-Control-Request-Headers: " +
        wanted + "\r\n\r\n");
    return client.Read().Header("access-control-allow-headers");
  };
  EXPECT_EQ(allowed("authorization,x-stainless-os"),
            "authorization,x-stainless-os");
  EXPECT_EQ(allowed("a<b").rfind("Authorization, ", 0), 0u);
  EXPECT_NE(client.Get("/health")
                .Header("access-control-expose-headers")
                .find("x-ratelimit-reset-tokens"),
            std::string::npos);
}

TEST(Routes, OllamaRefusesUnknownFormatsAndUnloads) {
  TestServer server;
  Client client(server.port());
  constexpr std::pair<const char*, const char*> kBad[] = {
      {R"({"model":"tiny","prompt":"a","format":"xml"})", "format"},
      {R"({"model":"tiny","keep_alive":0})", "keep_alive"},
      {R"({"model":"tiny","keep_alive":"0s"})", "keep_alive"}};
  for (const auto& [body, field] : kBad) {
    const Reply reply = client.Post("/api/generate", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_NE(reply.body.find(field), std::string::npos) << reply.body;
  }
  EXPECT_EQ(client.Post("/api/generate", R"({"model":"tiny"})").status, 200);
}

}  // namespace
}  // namespace millrace::server::http
