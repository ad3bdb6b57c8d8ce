// Writes the graph of an encoder down, operator by operator, with weights by
// their names.
//
//   GraphWriter w(tensors);
//   ASSIGN_OR_RETURN(ValueId y, w.Dense("pooler.dense", x, hidden, hidden));
//   y = w.Op("Tanh", {y});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/encoder/encoder_config.h"
#include "models/encoder/encoder_tensors.h"
#include "models/graph/ir.h"
#include "models/graph/op.h"

namespace millrace::models::encoder {

class GraphWriter {
 public:
  // `tensors` outlives it; the graph's constants keep what they read.
  explicit GraphWriter(const EncoderTensors& tensors) : tensors_(tensors) {}

  graph::Graph& graph() { return graph_; }
  const EncoderTensors& tensors() const { return tensors_; }

  // input_ids, attention_mask and, with several types, token_type_ids.
  struct Inputs {
    graph::ValueId ids = graph::kNoValue;
    graph::ValueId types = graph::kNoValue;
    graph::ValueId mask = graph::kNoValue;  // BOOL [batch, 1, 1, tokens]
    graph::PortDim batch;
    graph::PortDim tokens;
  };
  Inputs AddInputs(int64_t max_tokens, int64_t types);
  // last_hidden_state, or logits of so many classes.
  void AddHidden(const Inputs& inputs, graph::ValueId x, int64_t hidden);
  void AddLogits(const Inputs& inputs, graph::ValueId x, int64_t classes);

  // Errors name the tensor, its shape and what the config says.
  StatusOr<graph::ValueId> Weight(const std::string& name,
                                  const std::vector<int64_t>& dims);
  // Rows [first, first + count) of a matrix of `all` rows, or of a vector where
  // columns is 0.
  StatusOr<graph::ValueId> WeightRows(const std::string& name, int64_t first,
                                      int64_t count, int64_t all,
                                      int64_t columns);
  // x · weightᵀ (+ bias, where the file has one or `bias` demands it)
  StatusOr<graph::ValueId> Dense(const std::string& name, graph::ValueId x,
                                 int64_t outputs, int64_t inputs,
                                 bool bias = true);
  // LayerNorm; parameters may have their old names (gamma, beta).
  StatusOr<graph::ValueId> Norm(const std::string& name, graph::ValueId x,
                                int64_t hidden, double epsilon,
                                bool bias = true);
  // One of EncoderConfig::activation.
  graph::ValueId Activation(const std::string& name, graph::ValueId x);
  // [batch, tokens, heads * size] → [batch, heads, tokens, size]
  graph::ValueId SplitHeads(graph::ValueId x, int64_t heads, int64_t size);
  // and back
  graph::ValueId JoinHeads(graph::ValueId x, int64_t hidden);

  graph::ValueId Ints(const std::vector<int64_t>& values);
  graph::ValueId Scalar(int64_t value);
  graph::ValueId Floats(const std::vector<int64_t>& dims,
                        const std::vector<float>& values);
  graph::ValueId Op(const char* name, std::vector<graph::ValueId> inputs,
                    graph::Attrs attrs = {});

 private:
  // `count` of the first dimension from `first` on, of a tensor of these dims.
  StatusOr<graph::ValueId> Part(const std::string& name, int64_t first,
                                int64_t count, std::vector<int64_t> dims);

  const EncoderTensors& tensors_;
  graph::Graph graph_;
};

}  // namespace millrace::models::encoder
