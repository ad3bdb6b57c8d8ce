#include "server/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace millrace::server {
namespace {

using testing::HasSubstr;

// The digest of "test" (FIPS 180-4, by sha256sum).
constexpr char kDigest[] =
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

std::string Key(std::string_view rest = "scopes: [infer]") {
  return std::string("keys: [{id: a, sha256: ") + kDigest + ", " +
         std::string(rest) + "}]\n";
}

TEST(KeyFile, TenantsAndKeysAreRead) {
  const auto file = ParseKeyFile(
      "tenants:\n"
      "  acme: {requests_per_second: 0.5, request_burst: 4, weight: 3,\n"
      "         tokens_per_minute: 600, max_concurrent_requests: 2, "
      "max_sessions: 5,\n"
      "         priority: -1, models: [m, n]}\n" +
      Key("tenant: acme, scopes: [infer, metrics]"));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const TenantLimits limits = file->tenants.at("acme");
  EXPECT_EQ(limits.requests_per_second, 0.5);
  EXPECT_EQ(limits.request_burst, 4);
  EXPECT_EQ(limits.tokens_per_minute, 600);
  EXPECT_EQ(limits.max_concurrent_requests, 2);
  EXPECT_EQ(limits.max_sessions, 5);
  EXPECT_EQ(limits.priority, -1);
  EXPECT_EQ(limits.weight, 3);
  EXPECT_THAT(limits.models, testing::ElementsAre("m", "n"));
  ASSERT_EQ(file->keys.size(), 1u);
  EXPECT_EQ(file->keys[0].tenant, "acme");
  EXPECT_EQ(file->keys[0].scopes, 5);
  EXPECT_EQ(file->keys[0].digest, Sha256("test"));
  EXPECT_EQ(HexText(file->keys[0].digest), kDigest);
}

TEST(KeyFile, JsonIsTakenToo) {
  const auto file = ParseKeyFile(std::string(R"({"keys": [{"id": "a",
      "sha256": ")") + kDigest + R"(", "scopes": ["manage"]}]})");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->keys[0].tenant, "default");
}

TEST(KeyFile, WhatIsWrongIsNamedWithoutDigests) {
  const std::string twice = std::string("keys: [{id: a, sha256: ") + kDigest +
                            ", scopes: [infer]}, {id: a, sha256: " + kDigest +
                            ", scopes: [infer]}]";
  for (const auto& [text, words] :
       std::vector<std::pair<std::string, std::string>>{
           {"[]", "map"},
           {"key: []", "there is no field 'key'"},
           {"tenants: {a: {weigth: 1}}", "weigth"},
           {"tenants: {a: {weight: 0}}", "between 1 and 1000"},
           {"tenants: {a: {requests_per_second: nan}}", "a number"},
           {"tenants: {a: {request_burst: 2}}", "no effect"},
           {"tenants: {a b: {}}", "expected a name"},
           {"tenants: {a: {models: []}}", "list of model names"},
           {Key("scopes: []"), "infer, manage and metrics"},
           {Key("scopes: [admin]"), "infer, manage and metrics"},
           {Key("scopes: [infer], tenant: x"), "no tenant 'x'"},
           {twice, "twice"},
           {"keys: [{id: a, scopes: [infer]}]", "64 hexadecimal"},
           {"keys: [{id: a, sha256: 9f8, scopes: [infer]}]", "64 hexadecimal"},
           {"a: [", "no YAML"}}) {
    const auto file = ParseKeyFile(text);
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(words));
    EXPECT_THAT(std::string(file.status().message()),
                testing::Not(HasSubstr(kDigest)));
  }
}

TEST(KeyFile, NewKeysAreLongAndDiffer) {
  std::set<std::string> keys;
  for (int i = 0; i < 100; ++i) {
    const auto key = NewKey();
    ASSERT_TRUE(key.ok());
    EXPECT_EQ(key->size(), 46u);
    EXPECT_TRUE(key->starts_with("mr_"));
    keys.insert(*key);
  }
  EXPECT_EQ(keys.size(), 100u);
}

}  // namespace
}  // namespace millrace::server
