// When the requests of an open loop are due. The times do not depend on how
// fast the server answers: that is what makes the loop open.
//
//   Arrivals arrivals({.kind = ArrivalKind::kPoisson, .rate = 20, .seed = 7});
//   while (auto due = arrivals.Next()) ...  // offsets from the start, rising
//
// The same spec gives the same times on every machine. Not thread-safe: each
// thread has its own copy and takes its share of the requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace millrace::loadtest {

enum class ArrivalKind {
  kConstant,  // every 1/rate seconds
  kPoisson,   // independent, exponential gaps of 1/rate seconds on average
  kBurst,     // burst_size at once, every burst_size/rate seconds
  kTrace,     // the times of a recording
};

struct ArrivalSpec {
  ArrivalKind kind = ArrivalKind::kConstant;
  double rate = 1;  // requests/s; > 0
  int64_t burst_size = 1;
  uint64_t seed = 0;
  // kTrace: rising offsets from the start. The recording ends the run.
  std::vector<std::chrono::nanoseconds> trace = {};
};

class Arrivals {
 public:
  explicit Arrivals(ArrivalSpec spec);

  // The next request's offset from the start; nothing when a trace is over.
  std::optional<std::chrono::nanoseconds> Next();

 private:
  ArrivalSpec spec_;
  int64_t index_ = 0;    // of the next request
  double offset_s_ = 0;  // kPoisson: of the last request
  std::mt19937_64 random_;
};

}  // namespace millrace::loadtest
