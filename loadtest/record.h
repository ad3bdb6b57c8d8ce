// What is kept of one request. All times are of the steady clock. Latency
// counts from `intended`, the moment the request was due, not from the moment
// the client got round to sending it: a late client or a full connection must
// not hide the time a user would have waited (coordinated omission).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::loadtest {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

enum class Outcome : uint8_t {
  kOk,
  kConnect,          // no connection: refused, unreachable
  kConnectionLost,   // closed or reset before the reply was complete
  kTimeout,          // not answered within --request-timeout
  kHttpStatus,       // a status that is neither 2xx nor 429, or a gRPC error
  kRateLimited,      // 429, or RESOURCE_EXHAUSTED over gRPC
  kProtocol,         // no valid HTTP
  kTruncatedStream,  // a stream that ended without its last event
  kWrongJson,        // JSON that is malformed or lacks what the endpoint owes
  kStreamError,      // an error event inside a stream with status 200
  kUnfinished,       // still running when the run and its grace period ended
};

// "ok", "connect", ...: the keys of `errors` in reports.
std::string_view OutcomeName(Outcome outcome);

struct RequestRecord {
  Time intended = {};
  Time sent = {};  // when the client began to write it
  Time end = {};   // when the last byte had come
  Outcome outcome = Outcome::kOk;
  int status = 0;             // of HTTP or gRPC; 0: none came
  double retry_after_s = -1;  // header of a 429; -1: none
  int64_t input_tokens = -1;  // as the server counted; -1: it did not say
  int64_t output_tokens = -1;
  double server_prefill_ms = -1;  // of llama.cpp's `timings`; -1: none came
  double server_decode_ms = -1;
  // When chunks with output arrived; the first one ends the time to first
  // token. Empty where the endpoint does not stream.
  std::vector<Time> chunk_times = {};
  std::string error = {};  // a sentence, where outcome is not kOk
};

}  // namespace millrace::loadtest
