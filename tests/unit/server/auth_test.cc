#include "server/auth.h"
#include "tests/support/temp_path.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace millrace::server {
namespace {

config::ServerSettings WithKey(std::string keys) {
  config::ServerSettings settings;
  settings.api_key = std::move(keys);
  return settings;
}

TEST(Auth, WithoutKeysEverybodyPasses) {
  const auto auth = Auth::Create({});
  ASSERT_TRUE(auth.ok());
  EXPECT_FALSE((*auth)->required());
  EXPECT_TRUE((*auth)->Identify("", "").ok());
  EXPECT_TRUE((*auth)->Identify("Bearer whatever", "").ok());
}

TEST(Auth, EachKeyOfTheListPassesByEitherHeader) {
  const auto auth = Auth::Create(WithKey(" one, two "));
  ASSERT_TRUE(auth.ok());
  EXPECT_TRUE((*auth)->Identify("Bearer one", "").ok());
  EXPECT_TRUE((*auth)->Identify("BEARER  two", "").ok());
  EXPECT_TRUE((*auth)->Identify("", "two").ok());
  EXPECT_TRUE((*auth)->Identify("Bearer wrong", "one").ok());
}

TEST(Auth, NearMissesAreUnauthenticated) {
  const auto auth = Auth::Create(WithKey("one"));
  ASSERT_TRUE(auth.ok());
  for (const char* header : {"", "one", "Bearer", "Bearer ", "Bearer on",
                             "Bearer onee", "Bearer oneone", "Basic one"}) {
    EXPECT_EQ((*auth)->Identify(header, "").status().code(),
              StatusCode::kUnauthenticated)
        << header;
  }
}

TEST(Auth, OpenHostNeedsAKeyOrAWord) {
  config::ServerSettings settings;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.example.org"}) {
    settings.host = host;
    settings.no_auth = false;
    const auto refused = Auth::Create(settings);
    ASSERT_FALSE(refused.ok()) << host;
    EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
    settings.no_auth = true;
    EXPECT_TRUE(Auth::Create(settings).ok()) << host;
  }
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    settings.host = host;
    settings.no_auth = false;
    EXPECT_TRUE(Auth::Create(settings).ok()) << host;
  }
}

TEST(Auth, KeyFileHoldsOneKeyALine) {
  const std::string path = TempPath("keys.txt");
  std::ofstream(path) << "# comment\nfirst\r\n\n second \n";
  config::ServerSettings settings;
  settings.api_key_file = path;
  const auto auth = Auth::Create(settings);
  ASSERT_TRUE(auth.ok());
  EXPECT_TRUE((*auth)->Identify("Bearer first", "").ok());
  EXPECT_TRUE((*auth)->Identify("Bearer second", "").ok());
  EXPECT_FALSE((*auth)->Identify("Bearer # comment", "").ok());
  std::remove(path.c_str());
  EXPECT_FALSE(Auth::Create(settings).ok());
}

TEST(Auth, ACallerOfALongStreamIsValidUntilItsKeyLeavesTheFile) {
  const std::string path = TempPath("keys.yaml");
  const auto entry = [](const char* key, const char* scope) {
    std::string digest;
    for (const uint8_t byte : Sha256(key)) {
      char text[3];
      std::snprintf(text, sizeof(text), "%02x", byte);
      digest += text;
    }
    return std::string("  - {id: ") + key + ", sha256: " + digest +
           ", scopes: [" + scope + "]}\n";
  };
  const auto write = [&](const std::string& entries) {
    std::ofstream(path + ".new") << "keys:\n" << entries;
    std::rename((path + ".new").c_str(), path.c_str());
  };
  write(entry("one", "infer") + entry("two", "infer") +
        entry("three", "infer"));
  config::ServerSettings settings;
  settings.api_keys_file = path;
  FakeClock clock;
  const auto auth = Auth::Create(settings, &clock);
  ASSERT_TRUE(auth.ok()) << auth.status().message();
  const CallerPtr one = *(*auth)->Identify("Bearer one", "");
  const CallerPtr two = *(*auth)->Identify("Bearer two", "");
  const CallerPtr three = *(*auth)->Identify("Bearer three", "");
  EXPECT_TRUE((*auth)->CheckStillValid(*one).ok());
  // One stays, two leaves, three may do something else.
  write(entry("one", "infer") + entry("three", "metrics"));
  clock.Advance(WatchedFile::kLookInterval);
  EXPECT_TRUE((*auth)->CheckStillValid(*one).ok());
  EXPECT_EQ((*auth)->CheckStillValid(*two).code(),
            StatusCode::kUnauthenticated);
  EXPECT_EQ((*auth)->CheckStillValid(*three).code(),
            StatusCode::kUnauthenticated);
  EXPECT_EQ(*(*auth)->Identify("Bearer one", ""), one);
  std::remove(path.c_str());
}

TEST(Auth, EmptyKeysAreNoKeys) {
  EXPECT_FALSE(Auth::Create(WithKey(" , ")).ok());
}

TEST(Auth, IssuedKeysReplaceThoseOfBeforeAndExpire) {
  config::ServerSettings settings;
  settings.host = "0.0.0.0";
  const auto auth = Auth::Create(settings, &Clock::Real(), KeySource::kIssued);
  ASSERT_TRUE(auth.ok()) << auth.status().message();
  EXPECT_FALSE((*auth)->scoped());
  EXPECT_FALSE((*auth)->Identify("Bearer first", "").ok());
  const auto entry = [](std::string_view key, int64_t expires_unix) {
    return KeyEntry{.id = std::string(key),
                    .digest = Sha256(key),
                    .tenant = std::string(kDefaultTenant),
                    .scopes = static_cast<Scopes>(Scope::kInfer),
                    .expires_unix = expires_unix};
  };
  (*auth)->IssueKeys({entry("first", 0), entry("old", 1)});
  const auto first = (*auth)->Identify("Bearer first", "");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE((*auth)->Check(**first, Scope::kInfer).ok());
  EXPECT_EQ((*auth)->Check(**first, Scope::kManage).code(),
            StatusCode::kPermissionDenied);
  const auto old = (*auth)->Identify("Bearer old", "");
  EXPECT_EQ(old.status().code(), StatusCode::kUnauthenticated);
  EXPECT_NE(old.status().message().find("expired"), std::string::npos);
  (*auth)->IssueKeys({entry("second", 0)});
  EXPECT_FALSE((*auth)->Identify("Bearer first", "").ok());
  EXPECT_FALSE((*auth)->CheckStillValid(**first).ok());
  EXPECT_TRUE((*auth)->Identify("Bearer second", "").ok());
}

}  // namespace
}  // namespace millrace::server
