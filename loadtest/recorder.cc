// A request's chunks give len - 1 gaps; several tokens in one chunk count as
// one gap, since that is what a reader of the stream sees.
#include "loadtest/recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "config/base/status.h"

namespace millrace::loadtest {
namespace {

using std::chrono::nanoseconds;

float Ms(nanoseconds time) {
  return std::chrono::duration<float, std::milli>(time).count();
}

}  // namespace

std::string ErrorKey(const RequestRecord& record) {
  const bool refused = record.outcome == Outcome::kHttpStatus ||
                       record.outcome == Outcome::kRateLimited;
  if (!refused) return std::string(OutcomeName(record.outcome));
  if (record.status >= 100) return "http_" + std::to_string(record.status);
  return "grpc_" +
         std::string(StatusCodeName(static_cast<StatusCode>(record.status)));
}

double RunStats::ErrorRate() const {
  if (num_requests() == 0) return 0;
  return static_cast<double>(num_failed) / static_cast<double>(num_requests());
}

double RunStats::Seconds() const {
  if (last_end <= first_intended) return 0;
  return std::chrono::duration<double>(last_end - first_intended).count();
}

void RunStats::Merge(const RunStats& other) {
  ttft_ns.Merge(other.ttft_ns);
  itl_ns.Merge(other.itl_ns);
  tpot_ns.Merge(other.tpot_ns);
  latency_ns.Merge(other.latency_ns);
  lag_ns.Merge(other.lag_ns);
  input_tokens.Merge(other.input_tokens);
  output_tokens.Merge(other.output_tokens);
  retry_after_ms.Merge(other.retry_after_ms);
  server_prefill_ns.Merge(other.server_prefill_ns);
  server_decode_ns.Merge(other.server_decode_ns);
  before_prefill_ns.Merge(other.before_prefill_ns);
  num_ok += other.num_ok;
  num_good += other.num_good;
  num_failed += other.num_failed;
  for (const auto& [key, count] : other.errors) {
    ErrorCount& mine = errors[key];
    mine.count += count.count;
    if (mine.example.empty()) mine.example = count.example;
  }
  first_intended = std::min(first_intended, other.first_intended);
  last_end = std::max(last_end, other.last_end);
  points.insert(points.end(), other.points.begin(), other.points.end());
}

Recorder::Recorder(Slo slo, Time start) : slo_(std::move(slo)), start_(start) {}

void Recorder::Add(const RequestRecord& record) {
  stats_.first_intended = std::min(stats_.first_intended, record.intended);
  stats_.last_end = std::max(stats_.last_end, record.end);
  if (record.sent != Time()) {
    stats_.lag_ns.Add(nanoseconds(record.sent - record.intended).count());
  }
  RequestPoint point;
  point.at_ms = Ms(record.intended - start_);
  point.latency_ms = Ms(record.end - record.intended);
  if (record.outcome == Outcome::kOk) {
    AddOk(record, point);
  } else {
    ++stats_.num_failed;
    ErrorCount& error = stats_.errors[ErrorKey(record)];
    if (error.count++ == 0) error.example = record.error;
    if (record.retry_after_s >= 0) {
      stats_.retry_after_ms.Add(
          static_cast<int64_t>(record.retry_after_s * 1e3));
    }
  }
  if (stats_.points.size() < kMaxPoints) stats_.points.push_back(point);
}

void Recorder::AddOk(const RequestRecord& record, RequestPoint& point) {
  ++stats_.num_ok;
  point.ok = true;
  const nanoseconds latency = record.end - record.intended;
  nanoseconds ttft{-1};
  nanoseconds tpot{-1};
  stats_.latency_ns.Add(latency.count());
  if (!record.chunk_times.empty()) {
    ttft = record.chunk_times.front() - record.intended;
    stats_.ttft_ns.Add(ttft.count());
    point.ttft_ms = Ms(ttft);
    for (size_t i = 1; i < record.chunk_times.size(); ++i) {
      stats_.itl_ns.Add(
          nanoseconds(record.chunk_times[i] - record.chunk_times[i - 1])
              .count());
    }
    if (record.output_tokens > 1) {
      tpot = (latency - ttft) / (record.output_tokens - 1);
      stats_.tpot_ns.Add(tpot.count());
    }
  }
  const auto of_server = [](double ms) {
    return static_cast<int64_t>(std::clamp(ms, 0.0, 1e9) * 1e6);
  };
  if (record.server_prefill_ms >= 0) {
    const int64_t prefill = of_server(record.server_prefill_ms);
    stats_.server_prefill_ns.Add(prefill);
    if (ttft.count() >= 0) {
      stats_.before_prefill_ns.Add(
          std::max<int64_t>(0, ttft.count() - prefill));
    }
  }
  if (record.server_decode_ms >= 0) {
    stats_.server_decode_ns.Add(of_server(record.server_decode_ms));
  }
  if (record.input_tokens >= 0) stats_.input_tokens.Add(record.input_tokens);
  if (record.output_tokens >= 0) {
    stats_.output_tokens.Add(record.output_tokens);
    point.output_tokens = static_cast<int32_t>(record.output_tokens);
  }
  if (MeetsSlo(slo_, ttft, tpot, latency)) {
    ++stats_.num_good;
    point.good = true;
  }
}

RunStats Recorder::Take() { return std::move(stats_); }

}  // namespace millrace::loadtest
