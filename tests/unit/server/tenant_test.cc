#include "server/tenant.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace millrace::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::shared_ptr<Tenant> Make(TenantLimits limits, const Clock& clock) {
  return std::make_shared<Tenant>(1, "acme", std::move(limits), &clock);
}

TEST(Tenant, WithoutLimitsEverythingPasses) {
  FakeClock clock;
  const auto tenant = Make({}, clock);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(tenant->Admit().ok());
  EXPECT_TRUE(tenant->MayUse("anything").ok());
  EXPECT_EQ(tenant->quota().limit_requests, -1);
  EXPECT_EQ(tenant->PriorityOf(-3), -3);
}

TEST(Tenant, ABurstThenTheRate) {
  FakeClock clock;
  const auto tenant =
      Make({.requests_per_second = 2, .request_burst = 3}, clock);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(tenant->Admit().ok()) << i;
  const auto refused = tenant->Admit();
  ASSERT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().retry_after_ms(), 500);
  clock.Advance(milliseconds(499));
  EXPECT_FALSE(tenant->Admit().ok());
  clock.Advance(milliseconds(1));
  EXPECT_TRUE(tenant->Admit().ok());
  EXPECT_FALSE(tenant->Admit().ok());
  clock.Advance(seconds(3600));
  EXPECT_EQ(tenant->quota().remaining_requests, 3);
}

TEST(Tenant, OverdrawnTokensAreWaitedFor) {
  FakeClock clock;
  const auto tenant = Make({.tokens_per_minute = 60}, clock);
  {
    const auto permit = tenant->Admit();
    ASSERT_TRUE(permit.ok());
    permit->Spend(90);  // 30 more than there were
  }
  const auto refused = tenant->Admit();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().retry_after_ms(), 31'000);
  clock.Advance(milliseconds(30'999));
  EXPECT_FALSE(tenant->Admit().ok());
  clock.Advance(milliseconds(1));
  EXPECT_TRUE(tenant->Admit().ok());
}

TEST(Tenant, APlaceIsGivenBackAtTheEnd) {
  FakeClock clock;
  const auto tenant = Make({.max_concurrent_requests = 1}, clock);
  {
    Permit moved;
    {
      auto permit = tenant->Admit();
      ASSERT_TRUE(permit.ok());
      moved = *std::move(permit);
    }
    EXPECT_FALSE(tenant->Admit().ok());
  }
  EXPECT_TRUE(tenant->Admit().ok());
}

TEST(Tenant, ARefusalChargesNothing) {
  FakeClock clock;
  const auto tenant = Make({.requests_per_second = 1,
                            .request_burst = 2,
                            .max_concurrent_requests = 1},
                           clock);
  const auto running = tenant->Admit();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(tenant->Admit().ok());
  EXPECT_EQ(tenant->quota().remaining_requests, 1);
}

TEST(Tenant, SessionsAreBoundedApartFromRequests) {
  FakeClock clock;
  const auto tenant =
      Make({.max_concurrent_requests = 1, .max_sessions = 2}, clock);
  const auto one = tenant->AdmitSession();
  ASSERT_TRUE(one.ok());
  {
    auto two = tenant->AdmitSession();
    ASSERT_TRUE(two.ok());
    SessionPermit moved = *std::move(two);
    const auto refused = tenant->AdmitSession();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    EXPECT_GT(refused.status().retry_after_ms(), 0);
    EXPECT_TRUE(tenant->Admit().ok());  // a session is no request
  }
  EXPECT_TRUE(tenant->AdmitSession().ok());
}

TEST(Tenant, NewLimitsKeepWhatWasUsed) {
  FakeClock clock;
  const auto tenant =
      Make({.requests_per_second = 1, .request_burst = 2}, clock);
  EXPECT_TRUE(tenant->Admit().ok());
  EXPECT_TRUE(tenant->Admit().ok());
  tenant->SetLimits({.requests_per_second = 1, .request_burst = 3});
  EXPECT_EQ(tenant->quota().remaining_requests, 1);
}

TEST(Tenant, OnlyItsModelsAndItsPriority) {
  FakeClock clock;
  const auto tenant = Make({.priority = 2, .models = {"a"}}, clock);
  EXPECT_TRUE(tenant->MayUse("a").ok());
  EXPECT_EQ(tenant->MayUse("b").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(tenant->PriorityOf(0), 2);
  EXPECT_EQ(tenant->PriorityOf(7), 7);
}

}  // namespace
}  // namespace millrace::server
