// What the environment means, and how many spans are kept. Messages are decoded
// by another library in tests/e2e/test_traces.py.
#include "server/tracing/otlp_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

namespace millrace::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(OtlpOptions, NothingIsExportedUnlessSomebodyNamesACollector) {
  const auto none = ReadOtlpOptions("", {{"OTEL_SERVICE_NAME", "x"}});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->host, "");
  const auto off =
      ReadOtlpOptions("http://a:1", {{"OTEL_SDK_DISABLED", "true"}});
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(off->host, "");
  for (const char* text : {"TRUE", "True"}) {
    EXPECT_EQ(
        ReadOtlpOptions("http://a:1", {{"OTEL_SDK_DISABLED", text}})->host, "");
  }
  for (const char* text : {"1", "truer", "tru", ""}) {
    EXPECT_EQ(
        ReadOtlpOptions("http://a:1", {{"OTEL_SDK_DISABLED", text}})->host,
        "a");
  }
}

TEST(OtlpOptions, TheSettingWinsOverTheEnvironment) {
  const auto options = ReadOtlpOptions(
      "http://one:4000/base/",
      {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://two"},
       {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://three/whole"}});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->host, "one");
  EXPECT_EQ(options->port, "4000");
  EXPECT_EQ(options->path, "/base/v1/traces");
  EXPECT_EQ(options->resource.service_name, "millrace");
}

TEST(OtlpOptions, TheEndpointOfTracesIsTakenAsItIs) {
  const auto options = ReadOtlpOptions(
      "", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://two"},
           {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[::1]/whole"},
           {"OTEL_RESOURCE_ATTRIBUTES", "service.name=a,zone=b"},
           {"OTEL_EXPORTER_OTLP_HEADERS", "k=v=w,,=x"}});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->host, "::1");
  EXPECT_EQ(options->port, "4318");
  EXPECT_EQ(options->path, "/whole");
  EXPECT_EQ(options->resource.service_name, "a");
  EXPECT_THAT(options->resource.attributes, ElementsAre(Pair("zone", "b")));
  EXPECT_THAT(options->headers, ElementsAre(Pair("k", "v=w")));
}

TEST(OtlpOptions, PairsAreDecodedAndWithoutBlanks) {
  const auto options = ReadOtlpOptions(
      "http://a",
      {{"OTEL_EXPORTER_OTLP_HEADERS",
        " authorization = Bearer%20a%3Db%2Cc , x=100%,y=%4"},
       {"OTEL_RESOURCE_ATTRIBUTES", "service%2ename=mill , city=K%C3%B6ln%"}});
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->headers,
              ElementsAre(Pair("authorization", "Bearer a=b,c"),
                          Pair("x", "100%"), Pair("y", "%4")));
  EXPECT_EQ(options->resource.service_name, "mill");
  EXPECT_THAT(options->resource.attributes,
              ElementsAre(Pair("city", "K\xC3\xB6ln%")));
}

TEST(OtlpOptions, HeadersOfTracesReplaceTheOthers) {
  const auto options = ReadOtlpOptions(
      "http://a", {{"OTEL_EXPORTER_OTLP_HEADERS", "a=1,b=2"},
                   {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "c=3"}});
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->headers, ElementsAre(Pair("c", "3")));
}

TEST(OtlpOptions, WhatWouldBreakARequestIsLeftOut) {
  const auto options = ReadOtlpOptions(
      "http://a",
      {{"OTEL_EXPORTER_OTLP_HEADERS", "a=1%0D%0Ab: 2,c%20d=3,e=%FF,f=4"},
       {"OTEL_RESOURCE_ATTRIBUTES", "g=%FF,h=%C3%A4"}});
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->headers, ElementsAre(Pair("f", "4")));
  EXPECT_THAT(options->resource.attributes, ElementsAre(Pair("h", "\xC3\xA4")));
}

TEST(OtlpOptions, WhatIsNoUrlIsRefused) {
  for (const char* url :
       {"https://a", "a:4318", "http://", "http://a:b", "http://:4318/x"}) {
    const auto options = ReadOtlpOptions(url, {});
    ASSERT_FALSE(options.ok()) << url;
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(url));
    EXPECT_EQ(options.status().field(), "otlp_endpoint");
  }
}

TEST(OtlpExporter, AFullQueueDropsAndCounts) {
  MetricRegistry registry;
  // A port where nobody listens: what was queued fails at the end.
  OtlpOptions options;
  options.host = "127.0.0.1";
  options.port = "9";
  OtlpExporter exporter(options, &registry);
  for (int i = 0; i < 5000; ++i) exporter.Add("", 1);
  const std::string text = registry.Text();
  const std::string name = "{result=\"dropped_queue_full\"} ";
  const size_t at = text.find(name);
  ASSERT_NE(at, std::string::npos);
  // The exporter's thread may take one batch meanwhile.
  EXPECT_GE(std::stod(text.substr(at + name.size())), 5000 - 2 * 2048);
}

// A collector that answers byte by byte, so that no single wait is long.
class SlowCollector {
 public:
  SlowCollector() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, plain, size), 0);
    EXPECT_EQ(listen(listener_, 4), 0);
    EXPECT_EQ(getsockname(listener_, plain, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Answer(); });
  }
  ~SlowCollector() {
    shutdown(listener_, SHUT_RDWR);  // wakes who waits for a connection
    thread_.join();
    close(listener_);
  }
  int port() const { return port_; }

 private:
  void Answer() const {
    const int client = accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    for (const char c : std::string("HTTP/1.1 200 OK\r\n\r\n")) {
      if (send(client, &c, 1, MSG_NOSIGNAL) < 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    }
    close(client);
  }

  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

TEST(OtlpExporter, EndsInTimeWhateverTheCollectorDoes) {
  SlowCollector collector;
  OtlpOptions options;
  options.host = "127.0.0.1";
  options.port = std::to_string(collector.port());
  options.path = "/v1/traces";
  std::optional<OtlpExporter> exporter(std::in_place, options, nullptr);
  exporter->Add("", 1);
  const auto before = std::chrono::steady_clock::now();
  exporter.reset();
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_LT(took, std::chrono::seconds(8)) << "two, on a machine that is idle";
}

}  // namespace
}  // namespace millrace::server
