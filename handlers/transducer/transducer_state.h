// What a recogniser keeps of a session between two requests: sound that is not
// encoded yet, the encoder's states and the hypotheses. It travels as one
// tensor UINT8 [bytes], so that sequence_handler.h can keep it like any other
// state. A tensor of a single byte, as a sequence begins with, stands for none.
//
// Pure functions. The bytes are of this process alone; those that were cut are
// INTERNAL, never read past their end.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/status.h"
#include "handlers/transducer/transducer_search.h"
#include "models/tensor/tensor.h"

namespace millrace::handlers {

struct TransducerState {
  int64_t num_samples = 0;          // heard so far
  int64_t num_frames = 0;           // encoded so far
  std::vector<float> samples = {};  // those that the next segment begins with
  std::vector<models::Tensor> encoder = {};
  std::vector<Hypothesis> hypotheses = {};  // best first
};

models::Tensor WriteState(const TransducerState& state);
StatusOr<TransducerState> ReadState(const models::Tensor& tensor);

}  // namespace millrace::handlers
