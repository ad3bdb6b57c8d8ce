// Sums up the requests of a run. Times of requests that failed are counted in
// no latency: failures are counted by kind, and the rate of failures stands
// beside the latencies in every report.
//
//   Recorder recorder(slo);
//   recorder.Add(record);
//
// Not thread-safe: each thread has its own, Merge adds them up.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loadtest/histogram.h"
#include "loadtest/record.h"
#include "loadtest/slo.h"

namespace millrace::loadtest {

// Failures of one kind: "connect", "timeout", "http_503", "http_429", ...
struct ErrorCount {
  int64_t count = 0;
  std::string example;  // what the first one said
};

// One request in the plots over time, in milliseconds from the start.
struct RequestPoint {
  float at_ms = 0;  // when it was due
  float ttft_ms = -1;
  float latency_ms = 0;
  int32_t output_tokens = 0;
  bool ok = false;
  bool good = false;
};

struct RunStats {
  Histogram ttft_ns;  // time to first token
  Histogram itl_ns;   // gaps between chunks with output
  Histogram tpot_ns;  // (latency - ttft) / (output tokens - 1) of a request
  Histogram latency_ns;
  Histogram lag_ns;  // sent - intended, of every request that was sent
  Histogram input_tokens;
  Histogram output_tokens;
  Histogram retry_after_ms;  // what 429s asked for
  // As the server said of each request, and what is left of the time to first
  // token: queues, the network, the client.
  Histogram server_prefill_ns;
  Histogram server_decode_ns;
  Histogram before_prefill_ns;
  int64_t num_ok = 0;
  int64_t num_good = 0;  // ok and within the objectives
  int64_t num_failed = 0;
  std::map<std::string, ErrorCount> errors;
  Time first_intended = Time::max();
  Time last_end = Time::min();
  std::vector<RequestPoint> points;  // the first kMaxPoints of a thread

  int64_t num_requests() const { return num_ok + num_failed; }
  double ErrorRate() const;
  // From the first request's due time to the last one's end; 0 if none ended.
  double Seconds() const;
  void Merge(const RunStats& other);
};

class Recorder {
 public:
  static constexpr size_t kMaxPoints = 200'000;

  // `start` is the zero of the plots.
  Recorder(Slo slo, Time start);

  void Add(const RequestRecord& record);
  RunStats Take();

 private:
  void AddOk(const RequestRecord& record, RequestPoint& point);

  const Slo slo_;
  const Time start_;
  RunStats stats_;
};

// "http_503", "grpc_UNAVAILABLE", "timeout", ...
std::string ErrorKey(const RequestRecord& record);

}  // namespace millrace::loadtest
