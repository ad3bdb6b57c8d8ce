#include "server/http/exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/http/message.h"

namespace millrace::server::http {
namespace {

std::shared_ptr<Exchange> Make(int& wakes) {
  auto exchange =
      std::make_shared<Exchange>(HttpRequest{}, std::vector<std::string>{},
                                 std::make_shared<Trace>(), nullptr);
  exchange->SetWake([&wakes] { ++wakes; });
  return exchange;
}

TEST(Exchange, WritesGatherUntilTheyAreTakenAndWakeOnce) {
  int wakes = 0;
  const auto exchange = Make(wakes);
  exchange->BeginStream({});
  exchange->Write("a");
  exchange->Write("b");
  EXPECT_EQ(wakes, 1);
  Exchange::Output output = exchange->Take();
  EXPECT_TRUE(output.head.has_value());
  EXPECT_EQ(output.bytes, "ab");
  EXPECT_FALSE(output.ended);
  exchange->Write("c");
  exchange->End();
  EXPECT_EQ(wakes, 2);
  output = exchange->Take();
  EXPECT_FALSE(output.head.has_value());
  EXPECT_EQ(output.bytes, "c");
  EXPECT_TRUE(output.ended);
}

TEST(Exchange, BytesBeforeTheHeaderWaitForIt) {
  int wakes = 0;
  const auto exchange = Make(wakes);
  exchange->Write("early");
  EXPECT_EQ(wakes, 0);
  EXPECT_EQ(exchange->Take().bytes, "");
  exchange->BeginStream({});
  EXPECT_EQ(exchange->Take().bytes, "early");
}

TEST(Exchange, AResponseIsMadeWhenTheConnectionTakesIt) {
  int wakes = 0;
  const auto exchange = Make(wakes);
  const auto held = std::make_shared<int>();
  Exchange::MakeResponse make = [held] { return JsonResponse(200, "made"); };
  ASSERT_TRUE(exchange->SendWhenTaken(make));
  EXPECT_EQ(wakes, 1);
  exchange->Send(JsonResponse(500, "late"));
  EXPECT_EQ(held.use_count(), 2);
  const Exchange::Output output = exchange->Take();
  EXPECT_TRUE(output.whole);
  EXPECT_TRUE(output.ended);
  EXPECT_EQ(output.head->body, "made");
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(exchange->SendWhenTaken(make)) << "it has its answer";
}

TEST(Exchange, AConnectionThatIsGoneMakesNoResponse) {
  int wakes = 0;
  const auto exchange = Make(wakes);
  const auto held = std::make_shared<int>();
  Exchange::MakeResponse make = [held] { return JsonResponse(200, "made"); };
  Exchange::MakeResponse late = make;
  ASSERT_TRUE(exchange->SendWhenTaken(make));
  exchange->Detach();
  EXPECT_EQ(held.use_count(), 2) << "let go of where it is detached";
  EXPECT_FALSE(exchange->SendWhenTaken(late));
  EXPECT_TRUE(late) << "untouched";
}

TEST(Exchange, AWholeAnswerDropsBytesWrittenBefore) {
  int wakes = 0;
  const auto exchange = Make(wakes);
  exchange->Write("early");
  exchange->Send(JsonResponse(400, "{}"));
  exchange->Write("late");
  const Exchange::Output output = exchange->Take();
  EXPECT_TRUE(output.whole);
  EXPECT_TRUE(output.ended);
  EXPECT_EQ(output.bytes, "");
  EXPECT_EQ(output.head->status, 400);
}

TEST(Exchange, AnEndWithoutAnswerBecomesAnError) {
  int wakes = 0;
  const auto exchange = Make(wakes);
  exchange->End();
  EXPECT_EQ(exchange->Take().head->status, 500);
}

TEST(Exchange, DetachedExchangeWakesNobody) {
  int wakes = 0;
  const auto exchange = Make(wakes);
  exchange->Detach();
  exchange->Send(JsonResponse(200, "{}"));
  EXPECT_EQ(wakes, 0);
}

// What a client is told of when to come back, or "".
std::string RetryAfter(const Status& status) {
  for (const auto& [name, value] : ErrorResponse(status).headers) {
    if (name == "Retry-After") return value;
  }
  return "";
}

TEST(ErrorHeaders, RetryAfterStandsWhereAnotherTryMayHelp) {
  EXPECT_EQ(RetryAfter(ResourceExhausted("full").RetryAfterMs(2'500)), "3");
  EXPECT_EQ(RetryAfter(Unavailable("draining")), "1");
  EXPECT_EQ(RetryAfter(DeadlineExceeded("too near").RetryAfterMs(1'000)), "1");
  EXPECT_EQ(RetryAfter(DeadlineExceeded("the time is over")), "");
  EXPECT_EQ(RetryAfter(InvalidArgument("wrong").RetryAfterMs(1'000)), "");
}

}  // namespace
}  // namespace millrace::server::http
