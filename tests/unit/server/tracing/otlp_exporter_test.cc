// What the environment means, and how many spans are kept. Messages are decoded
// by another library in tests/e2e/test_traces.py.
#include "server/tracing/otlp_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace millrace::server
