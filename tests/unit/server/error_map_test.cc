#include "server/error_map.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/request_metrics.h"

namespace millrace::server {
namespace {

using Json = nlohmann::json;

TEST(ErrorMap, CodesHaveTheirHttpStatus) {
  EXPECT_EQ(HttpStatusOf(OkStatus()), 200);
  EXPECT_EQ(HttpStatusOf(InvalidArgument("x")), 400);
  EXPECT_EQ(HttpStatusOf(Unauthenticated("x")), 401);
  EXPECT_EQ(HttpStatusOf(NotFound("x")), 404);
  EXPECT_EQ(HttpStatusOf(ResourceExhausted("x")), 429);
  EXPECT_EQ(HttpStatusOf(Cancelled("x")), 499);
  EXPECT_EQ(HttpStatusOf(Unimplemented("x")), 501);
  EXPECT_EQ(HttpStatusOf(Unavailable("x")), 503);
  EXPECT_EQ(HttpStatusOf(DeadlineExceeded("x")), 504);
  EXPECT_EQ(HttpStatusOf(Internal("x")), 500);
  EXPECT_EQ(HttpStatusOf(DataLoss("x")), 500);
}

// An alert on errors is about the server, not about what clients try.
TEST(ErrorMap, OnlyFailuresOfTheServerCountAsErrors) {
  EXPECT_EQ(OutcomeOfHttpStatus(200), Outcome::kOk);
  EXPECT_EQ(OutcomeOfHttpStatus(404), Outcome::kClientError);
  EXPECT_EQ(OutcomeOfHttpStatus(429), Outcome::kRejected);
  EXPECT_EQ(OutcomeOfHttpStatus(500), Outcome::kError);
  EXPECT_EQ(OutcomeOfHttpStatus(501), Outcome::kClientError);
  EXPECT_EQ(OutcomeOfHttpStatus(503), Outcome::kRejected);
}

TEST(ErrorMap, TransportRefusalsHaveTheirOwn) {
  EXPECT_EQ(HttpStatusOf(InvalidArgument("x").Because("payload_too_large")),
            413);
  EXPECT_EQ(HttpStatusOf(InvalidArgument("x").Because("request_timeout")), 408);
}

// Another try of the client would change nothing, as 429 promises.
TEST(ErrorMap, AFullDiskIsAFailureOfTheServer) {
  const Status full = Internal("x").Because("disk_full");
  EXPECT_EQ(HttpStatusOf(full), 507);
  EXPECT_EQ(OutcomeOfHttpStatus(507), Outcome::kError);
  EXPECT_EQ(Json::parse(OpenAiErrorBody(full))["error"]["type"],
            "server_error");
}

TEST(ErrorMap, OpenAiBodyHasAllFourMembers) {
  const Json bare = Json::parse(OpenAiErrorBody(Internal("it \"broke\"")));
  EXPECT_EQ(bare["error"]["message"], "it \"broke\"");
  EXPECT_EQ(bare["error"]["type"], "server_error");
  EXPECT_TRUE(bare["error"]["param"].is_null());
  EXPECT_TRUE(bare["error"]["code"].is_null());
  const Json full = Json::parse(OpenAiErrorBody(
      InvalidArgument("too long").At("prompt").Because("too_long")));
  EXPECT_EQ(full["error"]["param"], "prompt");
  EXPECT_EQ(full["error"]["code"], "too_long");
}

TEST(ErrorMap, BodiesAreJsonWhateverTheMessageHolds) {
  EXPECT_TRUE(Json::accept(OpenAiErrorBody(Internal("\xff\n\x01"))));
  EXPECT_EQ(OipErrorBody(NotFound("no")), "{\"error\":\"no\"}");
}

}  // namespace
}  // namespace millrace::server
