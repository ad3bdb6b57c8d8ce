// Requests with times of a made-up clock, small enough to check by hand.
#include "loadtest/recorder.h"

#include <gtest/gtest.h>

namespace millrace::loadtest {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr Time kStart = Time(1000s);

int64_t Ns(nanoseconds time) { return time.count(); }

// Due at `due`, sent `lag` later, with chunks at these times after it was due.
RequestRecord Answered(nanoseconds due, nanoseconds lag,
                       std::initializer_list<nanoseconds> chunks,
                       nanoseconds latency) {
  RequestRecord record;
  record.intended = kStart + due;
  record.sent = record.intended + lag;
  for (const nanoseconds at : chunks) {
    record.chunk_times.push_back(record.intended + at);
  }
  record.end = record.intended + latency;
  record.status = 200;
  record.output_tokens = static_cast<int64_t>(chunks.size());
  return record;
}

TEST(Recorder, TimesOfAStreamCountFromWhenItWasDue) {
  Recorder recorder({}, kStart);
  recorder.Add(Answered(1s, 300ms, {400ms, 410ms, 430ms}, 440ms));
  const RunStats stats = recorder.Take();
  EXPECT_EQ(stats.ttft_ns.max(), Ns(400ms)) << "not from when it was sent";
  EXPECT_EQ(stats.latency_ns.max(), Ns(440ms));
  EXPECT_EQ(stats.lag_ns.max(), Ns(300ms));
  EXPECT_EQ(stats.itl_ns.count(), 2);
  EXPECT_EQ(stats.itl_ns.min(), Ns(10ms));
  EXPECT_EQ(stats.itl_ns.max(), Ns(20ms));
  EXPECT_EQ(stats.tpot_ns.max(), Ns(20ms)) << "(440 - 400) / (3 - 1)";
}

TEST(Recorder, AStalledServerShowsInEveryRequestThatWasDueMeanwhile) {
  // One request a 10 ms; the server stands still for the first second and
  // answers all at its end. A client that measured from sending would see
  // one slow request.
  Recorder recorder({}, kStart);
  for (int i = 0; i < 100; ++i) {
    const nanoseconds due = i * 10ms;
    recorder.Add(Answered(due, 0ns, {}, 1s - due));
  }
  const RunStats stats = recorder.Take();
  EXPECT_NEAR(static_cast<double>(stats.latency_ns.Percentile(50)),
              static_cast<double>(Ns(500ms)), Ns(1ms));
}

TEST(Recorder, FailuresAreCountedByKindAndInNoLatency) {
  Recorder recorder({}, kStart);
  recorder.Add(Answered(0s, 0ns, {5ms}, 10ms));
  for (const auto& [outcome, status] : {std::pair(Outcome::kHttpStatus, 503),
                                        {Outcome::kHttpStatus, 14},
                                        {Outcome::kRateLimited, 429},
                                        {Outcome::kTimeout, 0},
                                        {Outcome::kTimeout, 0},
                                        {Outcome::kTruncatedStream, 200}}) {
    RequestRecord record = Answered(0s, 0ns, {1ms, 2ms}, 99s);
    record.outcome = outcome;
    record.status = status;
    record.error = "why";
    if (status == 429) record.retry_after_s = 2;
    recorder.Add(record);
  }
  const RunStats stats = recorder.Take();
  EXPECT_EQ(stats.num_ok, 1);
  EXPECT_EQ(stats.num_failed, 6);
  EXPECT_NEAR(stats.ErrorRate(), 6.0 / 7, 1e-12);
  EXPECT_EQ(stats.latency_ns.count(), 1);
  EXPECT_EQ(stats.itl_ns.count(), 0);
  EXPECT_EQ(stats.output_tokens.sum(), 1);
  EXPECT_EQ(stats.errors.at("http_503").count, 1);
  EXPECT_EQ(stats.errors.at("grpc_UNAVAILABLE").count, 1);
  EXPECT_EQ(stats.errors.at("http_429").count, 1);
  EXPECT_EQ(stats.errors.at("timeout").count, 2);
  EXPECT_EQ(stats.errors.at("truncated_stream").count, 1);
  EXPECT_EQ(stats.errors.at("timeout").example, "why");
  EXPECT_EQ(stats.retry_after_ms.max(), 2000);
}

TEST(Recorder, GoodputCountsRequestsWithinEveryLimit) {
  Recorder recorder(*ParseSlo("ttft:p99:100ms,latency:p99:1s"), kStart);
  recorder.Add(Answered(0s, 0ns, {100ms, 200ms}, 1s));
  recorder.Add(Answered(0s, 0ns, {101ms, 200ms}, 1s));
  recorder.Add(Answered(0s, 0ns, {100ms, 200ms}, 1001ms));
  RequestRecord failed = Answered(0s, 0ns, {1ms}, 2ms);
  failed.outcome = Outcome::kConnectionLost;
  recorder.Add(failed);
  EXPECT_EQ(recorder.Take().num_good, 1);
}

TEST(Recorder, PartsOfThreadsAddUp) {
  Recorder one({}, kStart);
  Recorder two({}, kStart);
  one.Add(Answered(0s, 0ns, {}, 10ms));
  two.Add(Answered(2s, 0ns, {}, 500ms));
  RequestRecord failed = Answered(1s, 0ns, {}, 1ms);
  failed.outcome = Outcome::kConnect;
  two.Add(failed);
  RunStats stats = one.Take();
  stats.Merge(two.Take());
  EXPECT_EQ(stats.num_requests(), 3);
  EXPECT_DOUBLE_EQ(stats.Seconds(), 2.5);
  EXPECT_EQ(stats.points.size(), 3u);
  EXPECT_FLOAT_EQ(stats.points[1].at_ms, 2000);
  EXPECT_EQ(stats.errors.at("connect").count, 1);
}

TEST(Recorder, NothingRecordedIsNoTime) {
  Recorder recorder({}, kStart);
  EXPECT_EQ(recorder.Take().Seconds(), 0);
}

}  // namespace
}  // namespace millrace::loadtest
