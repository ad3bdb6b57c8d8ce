// How a model keeps a state for each sequence of requests. The words are those
// of Triton's sequence_batching, which config.pbtxt and config.yaml have alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::config {

// An input of the model that tells where in a sequence a request stands.
struct SequenceControl {
  enum class Kind { kStart, kReady, kEnd, kCorrelationId };
  Kind kind = Kind::kStart;
  std::string input;
  std::string datatype;  // "INT32"
  double if_false = 0;   // its values; of all but the correlation id
  double if_true = 1;
};

// An output of the model that is an input of the sequence's next request.
struct SequenceState {
  std::string input;
  std::string output;
  std::string datatype = {};  // empty: the model's
  // Of the initial state, with the batch's; the model's where not declared,
  // sizes that vary are 1.
  std::vector<int64_t> dims = {};
  bool has_dims = false;
  std::string initial_file = {};  // in the folder initial_state; empty: zeros
};

struct SequenceSettings {
  static constexpr int64_t kMaxIdleUs = 1'000'000;
  static constexpr int64_t kMaxSequences = 1024;
  static constexpr int64_t kMaxStateBytes = int64_t{1} << 30;

  bool oldest = false;
  // A slot for each row of each instance: a load makes max_sequences of that.
  bool direct = false;
  int64_t max_idle_us = kMaxIdleUs;
  int64_t max_sequences = kMaxSequences;     // more are refused
  int64_t max_state_bytes = kMaxStateBytes;  // of states; of what waits, too
  bool has_batch = false;  // a request has a first dimension, of size 1
  std::vector<SequenceControl> controls;
  std::vector<SequenceState> states;
};

}  // namespace millrace::config
