#include "server/cli/chat/sse_reader.h"

#include <gtest/gtest.h>

namespace millrace::server {
namespace {

using Events = std::vector<std::string>;

TEST(SseReader, EventsEndWithABlankLineOfAnyKind) {
  SseReader reader;
  EXPECT_EQ(reader.Feed("data: a\n\ndata: b\r\n\r\ndata:c\r\r"),
            (Events{"a", "b", "c"}));
}

TEST(SseReader, EveryCutGivesTheSameEvents) {
  const std::string stream =
      ": comment\r\ndata: one\r\ndata: two\r\n\r\nevent: x\nid: 1\n\n"
      "data\n\ndata: [DONE]\n\n";
  const Events expected = {"one\ntwo", "", "[DONE]"};
  EXPECT_EQ(SseReader().Feed(stream), expected);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    SseReader reader;
    Events events = reader.Feed(std::string_view(stream).substr(0, cut));
    for (auto& event : reader.Feed(std::string_view(stream).substr(cut))) {
      events.push_back(event);
    }
    EXPECT_EQ(events, expected) << "cut at " << cut;
  }
}

TEST(SseReader, OtherFieldsAreNoData) {
  EXPECT_EQ(SseReader().Feed("datax: a\n\nretry: 5\n\n"), Events{});
}

}  // namespace
}  // namespace millrace::server
