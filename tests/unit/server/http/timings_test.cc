#include "server/http/timings.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

TEST(Timings, CountsAndTimesOfPromptAndCompletion) {
  Trace trace;
  const Clock::Time start = Clock::Time() + milliseconds(1000);
  trace.Stamp(Stage::kScheduled, start);
  trace.Stamp(Stage::kFirstToken, start + milliseconds(50));
  const Json json = Json::parse(TimingsJson(
      {.prompt_tokens = 30, .completion_tokens = 4, .cached_tokens = 20}, trace,
      start + milliseconds(250)));
  EXPECT_EQ(json, Json::parse(R"({
    "cache_n": 20, "prompt_n": 10, "prompt_ms": 50.0,
    "prompt_per_token_ms": 5.0, "prompt_per_second": 200.0,
    "predicted_n": 4, "predicted_ms": 200.0, "predicted_per_token_ms": 50.0,
    "predicted_per_second": 20.0})"));
}

TEST(Timings, OfAPromptThatIsNotComputedYet) {
  const handlers::PromptProgress progress = {
      .total = 100, .cached = 20, .processed = 60, .seconds = 0.2};
  EXPECT_EQ(Json::parse(ProgressJson(progress)), Json::parse(R"({
    "total": 100, "cache": 20, "processed": 60, "time_ms": 200})"));
  EXPECT_EQ(Json::parse(TimingsJson(progress)), Json::parse(R"({
    "cache_n": 20, "prompt_n": 40, "prompt_ms": 200.0,
    "prompt_per_token_ms": 5.0, "prompt_per_second": 200.0,
    "predicted_n": 0, "predicted_ms": 0.0, "predicted_per_token_ms": 0.0,
    "predicted_per_second": 0.0})"));
}

TEST(Timings, WithoutStampsTheyAreZero) {
  const Json json = Json::parse(TimingsJson({}, Trace{}, Clock::Time()));
  EXPECT_EQ(json["prompt_ms"], 0.0);
  EXPECT_EQ(json["predicted_per_second"], 0.0);
}

}  // namespace
}  // namespace millrace::server::http
