// One simulated server: next() is the time of its next event, Run computes it.
//
//   auto replica = MakeReplica(model, requests, sink);
//   replica->Add(request, now);
//   while (replica->next() != kNever) replica->Run(replica->next());
//
// Steps that only decode are one event until a sequence ends or a request
// comes that can join, so that the number of events does not grow with the
// number of tokens.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "loadtest/plan/server_model.h"

namespace millrace::loadtest {

constexpr Ns kNever = std::numeric_limits<Ns>::max();

struct SimRequest {
  Ns arrival = 0;
  int32_t input_tokens = 0;  // at least 1
  int32_t output_tokens = 1;
  int32_t rows = 1;    // of a graph's request
  int32_t group = -1;  // of requests that begin alike; -1: none
};

// Takes what a replica has done. Requests are indices.
class SimSink {
 public:
  virtual ~SimSink() = default;
  virtual void FirstToken(uint32_t request, Ns now) = 0;
  // `count` gaps of that length between tokens.
  virtual void Gaps(Ns gap, int64_t count) = 0;
  virtual void Done(uint32_t request, Ns now) = 0;
  virtual void Refused(uint32_t request) = 0;  // can never run
};

class Replica {
 public:
  virtual ~Replica() = default;

  virtual void Add(uint32_t request, Ns now) = 0;
  virtual void Run(Ns now) = 0;
  // Requests it has not ended, which it forgets: the replica is lost.
  virtual std::vector<uint32_t> Evict() = 0;

  Ns next() const { return next_; }
  int64_t outstanding() const { return outstanding_; }

 protected:
  Ns next_ = kNever;
  int64_t outstanding_ = 0;
};

// `model`, `requests` and `sink` outlive the replica. `prefix_tokens` of a
// request whose group ran here lately are not computed again.
std::unique_ptr<Replica> MakeReplica(const ServerModel& model,
                                     const std::vector<SimRequest>& requests,
                                     int64_t prefix_tokens, SimSink& sink);

}  // namespace millrace::loadtest
