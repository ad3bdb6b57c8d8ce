#include "config/base/trace_context.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr const char* kGiven =
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, TheCallersTraceGoesOnWithASpanOfOurOwn) {
  const TraceContext context = BeginTrace(kGiven, "vendor=1");
  EXPECT_EQ(TraceIdText(context), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_TRUE(context.has_parent());
  EXPECT_TRUE(context.sampled);
  EXPECT_EQ(context.state, "vendor=1");
  const std::string next = Traceparent(context);
  EXPECT_TRUE(IsTraceparent(next)) << next;
  EXPECT_EQ(next.substr(0, 36), std::string(kGiven).substr(0, 36));
  EXPECT_NE(next, kGiven);
  EXPECT_FALSE(BeginTrace("00-0af7651916cd43dd8448eb211c80319c-"
                          "b7ad6b7169203331-00",
                          "")
                   .sampled);
}

TEST(TraceContext, AMalformedHeaderBeginsANewTrace) {
  for (const char* bad :
       {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
        "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    EXPECT_FALSE(IsTraceparent(bad)) << bad;
    const TraceContext context = BeginTrace(bad, "vendor=1");
    EXPECT_TRUE(context.valid());
    EXPECT_FALSE(context.has_parent());
    EXPECT_EQ(context.state, "");
    EXPECT_TRUE(IsTraceparent(Traceparent(context)));
  }
  EXPECT_TRUE(IsTraceparent(
      "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later"));
}

TEST(TraceContext, EachTraceIsAnother) {
  EXPECT_NE(TraceIdText(BeginTrace("", "")), TraceIdText(BeginTrace("", "")));
  EXPECT_FALSE(TraceContext().valid());
}

}  // namespace
}  // namespace millrace
