#include "loadtest/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/endpoint.h"

namespace millrace::loadtest {
namespace {

using testing::HasSubstr;

TEST(Url, ReadsHostPortAndPrefix) {
  const auto url = ParseUrl("http://example:8000/openai/v1/", "80");
  ASSERT_TRUE(url.ok()) << url.status().ToString();
  EXPECT_EQ(url->host, "example");
  EXPECT_EQ(url->port, "8000");
  EXPECT_EQ(url->prefix, "/openai/v1");
  EXPECT_EQ(ParseUrl("example", "8001")->HostPort(), "example:8001");
  EXPECT_EQ(ParseUrl("http://[::1]:80", "1")->HostPort(), "[::1]:80");
}

TEST(Url, HttpsIsTlsWithItsOwnPort) {
  EXPECT_FALSE(ParseUrl("http://a", "80")->is_tls);
  EXPECT_TRUE(ParseUrl("https://a", "80")->is_tls);
  EXPECT_EQ(ParseUrl("https://a", "80")->port, "443");
  EXPECT_EQ(ParseUrl("https://a:8443/v1", "80")->port, "8443");
  EXPECT_TRUE(ParseUrl("grpcs://a", "8001")->is_tls);
  EXPECT_EQ(ParseUrl("grpcs://a", "8001")->port, "8001");
}

TEST(Url, ErrorsSayWhatIsWrong) {
  const auto message = [](const char* text) {
    return std::string(ParseUrl(text, "80").status().message());
  };
  EXPECT_THAT(message("ftp://a"), HasSubstr("scheme"));
  EXPECT_THAT(message("http://:80"), HasSubstr("no host"));
  EXPECT_THAT(message("http://a:99999"), HasSubstr("port"));
  EXPECT_THAT(message("http://a:x"), HasSubstr("port"));
  EXPECT_THAT(message("http://a:"), HasSubstr("port"));
  EXPECT_THAT(message("http://[::1"), HasSubstr("]"));
  EXPECT_THAT(message("http://a/b c"), HasSubstr("space"));
}

TEST(Endpoint, PathsDoNotDoubleThePrefix) {
  EXPECT_EQ(EndpointPath(EndpointType::kChat, "m", ""), "/v1/chat/completions");
  EXPECT_EQ(EndpointPath(EndpointType::kCompletions, "m", "/openai/v1"),
            "/openai/v1/completions");
  EXPECT_EQ(EndpointPath(EndpointType::kKserve, "a b/c", "/x"),
            "/x/v2/models/a%20b%2Fc/infer");
  EXPECT_EQ(EndpointPath(EndpointType::kTorchserve, "m", ""), "/predictions/m");
}

TEST(Endpoint, NamesGoBothWays) {
  for (const char* name : {"chat", "completions", "embeddings", "kserve",
                           "kserve-grpc", "torchserve"}) {
    ASSERT_TRUE(EndpointOf(name).has_value()) << name;
    EXPECT_EQ(EndpointName(*EndpointOf(name)), name);
  }
  EXPECT_FALSE(EndpointOf("triton").has_value());
}

}  // namespace
}  // namespace millrace::loadtest
