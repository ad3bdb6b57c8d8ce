// The three graphs of a recogniser, what they take and give. Inputs and outputs
// are known by their places, names are free:
//
//   encoder    features FP32 [1, segment + right context, mels], states
//              → encodings FP32 [1, frames, width], the same states
//   predictor  token INT64 or INT32 [n], states FP32 [n, ...]
//              → encoding FP32 [n, width], the same states
//   joiner     encoding FP32 [n, width], encoding of the predictor
//              → logits FP32 [n, tokens]
//
// Sizes of 1 may stand between, as in [n, 1, width]. States begin with zeros.
// n is the number of hypotheses; where it is always 1 the search is greedy.
//
// Immutable after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/transducer_settings.h"
#include "handlers/handler.h"
#include "handlers/messages.h"
#include "handlers/transducer/transducer_search.h"
#include "models/tensor/tensor.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

// All outlive the ports.
struct TransducerGraphs {
  TensorHandler* encoder = nullptr;
  TensorHandler* predictor = nullptr;
  TensorHandler* joiner = nullptr;
  int64_t num_encoders = 1;  // instances of the encoder
};

class TransducerPorts {
 public:
  // INVALID_ARGUMENT names the graph and the input or output that does not fit.
  static StatusOr<TransducerPorts> Create(
      const TransducerGraphs& graphs,
      const config::TransducerSettings& settings, bool one_hypothesis);

  int64_t num_mels() const { return num_mels_; }
  int64_t num_tokens() const { return num_tokens_; }  // -1: is not told
  int64_t width() const { return width_; }            // of encodings
  int64_t frames() const { return frames_; }          // of a segment, encoded
  const models::TensorSpec& logits() const;
  const TransducerGraphs& graphs() const { return graphs_; }

  std::vector<models::Tensor> InitialStates() const;  // of the encoder
  std::vector<NamedTensor> EncoderInputs(
      models::Tensor features, const std::vector<models::Tensor>& states) const;
  std::vector<NamedTensor> PredictorInputs(
      const std::vector<TransducerSearch::Ask>& asks) const;
  // `encoding` is [width]: each hypothesis is joined with it.
  std::vector<NamedTensor> JoinerInputs(
      std::span<const float> encoding,
      const std::vector<Hypothesis>& alive) const;

  // What the graphs gave. INTERNAL where it is not what they promise.
  struct Encoded {
    models::Tensor encodings;  // [1, frames, width]
    std::vector<models::Tensor> states;
  };
  StatusOr<Encoded> ReadEncoded(TensorResponse response) const;
  StatusOr<std::vector<std::shared_ptr<const Prediction>>> ReadPredictions(
      const TensorResponse& response, size_t count) const;
  StatusOr<std::span<const float>> ReadLogits(const TensorResponse& response,
                                              size_t count,
                                              int64_t num_tokens) const;

 private:
  explicit TransducerPorts(const TransducerGraphs& graphs) : graphs_(graphs) {}
  Status FitEncoder(const config::TransducerSettings& settings);
  Status FitPredictor(bool one_hypothesis);
  Status FitJoiner();

  TransducerGraphs graphs_;
  int64_t num_mels_ = 0;
  int64_t num_tokens_ = -1;
  int64_t width_ = 0;
  int64_t frames_ = 0;
};

}  // namespace millrace::handlers
