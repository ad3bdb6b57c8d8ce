// The live sequences of a model: their states, what waits for its turn, and the
// order in which they were last asked for.
//
// Not thread-safe: its owner has the lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/base/clock.h"
#include "handlers/handler.h"
#include "handlers/messages.h"
#include "handlers/sequences/sequence_place.h"
#include "models/tensor/tensor.h"

namespace millrace::handlers {

struct WaitingRequest {
  SequencePlace place;
  TensorRequest request;
  TensorHandler::Done done;
  std::stop_token stop;
  int64_t bytes = 0;  // of its inputs, where it waits
};

struct Sequence {
  std::vector<models::Tensor> states;
  int64_t state_bytes = 0;
  bool begun = false;    // its first request has come so far as to be computed
  bool left = false;     // its client is gone: it ends with what waits
  bool running = false;  // one of its requests is with the model
  std::deque<WaitingRequest> waiting;
  Clock::Time last_use{};
  std::list<SequenceId>::iterator place{};  // in the order of last use
};

class SequenceTable {
 public:
  Sequence* Find(const SequenceId& id);
  // There is none of that id.
  Sequence& Add(const SequenceId& id, Clock::Time now);
  void Erase(const SequenceId& id);
  // It is the one asked for last.
  void Touch(Sequence& sequence, Clock::Time now);
  void SetStates(Sequence& sequence, std::vector<models::Tensor> states);

  // Ends those that nobody asked for since then. How many that were.
  int64_t EraseUnusedSince(Clock::Time time);

  int64_t size() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t state_bytes() const { return state_bytes_; }

 private:
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::list<SequenceId> by_use_;  // the one asked for last at the end
  int64_t state_bytes_ = 0;
};

}  // namespace millrace::handlers
