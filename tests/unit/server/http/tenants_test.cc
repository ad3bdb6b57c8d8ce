// What one tenant's requests get, and what other tenants do not see of it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "server/key_file.h"
#include "tests/support/temp_path.h"
#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

std::string Line(const char* key, const char* scope) {
  return std::string("  - {id: ") + key + ", sha256: " + HexText(Sha256(key)) +
         ", tenant: " + key + ", scopes: [" + scope + "]}\n";
}

// Keys "one" and "two" of tenants of the same names; "meter" reads metrics.
config::ServerSettings TwoTenants(const std::string& limits_of_one) {
  config::ServerSettings settings = QuietSettings();
  settings.api_keys_file = TempPath("tenants_test.yaml");
  std::ofstream(settings.api_keys_file)
      << "tenants:\n  one: {" << limits_of_one
      << "}\n  two: {}\n  meter: {}\nkeys:\n"
      << Line("one", "infer") << Line("two", "infer")
      << Line("meter", "metrics");
  return settings;
}

std::string Key(const std::string& key) {
  return "Authorization: Bearer " + key +
         "\r\nContent-Type: application/json\r\n";
}

TEST(Tenants, EachProtocolBringsTheTenantAndItsPriority) {
  TestServer server(TwoTenants("priority: 5, weight: 3"));
  constexpr std::pair<const char*, const char*> kRequests[] = {
      {"/v1/chat/completions",
       R"({"model":"tiny","messages":[{"role":"user","content":"a"}]})"},
      {"/v1/messages", R"({"model":"tiny","max_tokens":4,)"
                       R"("messages":[{"role":"user","content":"a"}]})"},
      {"/v1/responses", R"({"model":"tiny","input":"a"})"},
      {"/api/chat",
       R"({"model":"tiny","messages":[{"role":"user","content":"a"}]})"},
      {"/api/generate", R"({"model":"tiny","prompt":"a"})"},
      {"/completion", R"({"model":"tiny","prompt":"a"})"}};
  for (const auto& [path, body] : kRequests) {
    Client client(server.port());
    client.Send(PostText(path, body, Key("one")));
    Started started = server.handler->Next();
    EXPECT_EQ(started.request.options.priority, 5) << path;
    EXPECT_EQ(started.request.tenant.weight, 3) << path;
    EXPECT_FALSE(started.request.tenant.alone) << path;
    SayHello(std::move(started));
    EXPECT_EQ(client.Read().status, 200) << path;
  }
}

TEST(Tenants, AKeptResponseIsItsTenants) {
  TestServer server(TwoTenants(""));
  server.handler->script = SayHello;
  Client client(server.port());
  const Json made = Json::parse(
      client
          .Post("/v1/responses", R"({"model":"tiny","input":"a"})", Key("one"))
          .body);
  const std::string path = "/v1/responses/" + made["id"].get<std::string>();
  EXPECT_EQ(client.Get(path, Key("one")).status, 200);
  EXPECT_EQ(client.Get(path, Key("two")).status, 404);
  EXPECT_EQ(client.Get(path + "/input_items", Key("two")).status, 404);
  EXPECT_EQ(client.Get(path, Key("meter")).status, 403);
  const Json on = {
      {"model", "tiny"}, {"input", "b"}, {"previous_response_id", made["id"]}};
  EXPECT_EQ(client.Post("/v1/responses", on.dump(), Key("two")).status, 404);
  EXPECT_EQ(client.Post("/v1/responses", on.dump(), Key("one")).status, 200);
}

TEST(Tenants, ListsShowOnlyTheModelsThatATenantMayUse) {
  for (const char* allowed : {"tiny-chat", "tiny", "other"}) {
    const std::string name = allowed;
    TestServer server(TwoTenants("models: [" + name + "]"));
    Client client(server.port());
    const Json models =
        Json::parse(client.Get("/v1/models", Key("one")).body)["data"];
    ASSERT_EQ(models.size(), name == "other" ? 0u : 1u);
    if (!models.empty()) {
      EXPECT_EQ(models[0]["id"], name);
    }
    const size_t by_id = name == "tiny" ? 1 : 0;
    for (const char* path : {"/api/tags", "/api/ps"}) {
      EXPECT_EQ(Json::parse(client.Get(path, Key("one")).body)["models"].size(),
                by_id);
    }
    const std::string page = client.Get("/", Key("one")).body;
    EXPECT_EQ(page.find("millrace_llama") != std::string::npos, by_id == 1);
    EXPECT_EQ(client.Get("/v1/models/tiny", Key("one")).status,
              by_id == 1 ? 200 : 403);
  }
}

}  // namespace
}  // namespace millrace::server::http
