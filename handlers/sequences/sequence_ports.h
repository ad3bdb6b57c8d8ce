// Which inputs and outputs of a graph are states and controls of its sequences,
// and what is put into them. The others are those that clients see.
//
// Immutable after Create.
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/sequence_settings.h"
#include "handlers/messages.h"
#include "handlers/sequences/sequence_place.h"
#include "models/tensor/tensor.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

class SequencePorts {
 public:
  // `folder` has the files of initial states. INVALID_ARGUMENT names what the
  // model does not have, or has with another type or shape.
  static StatusOr<SequencePorts> Create(
      const std::string& model, const config::SequenceSettings& settings,
      const std::string& folder, const std::vector<models::TensorSpec>& inputs,
      const std::vector<models::TensorSpec>& outputs);

  const std::vector<models::TensorSpec>& inputs() const { return inputs_; }
  const std::vector<models::TensorSpec>& outputs() const { return outputs_; }
  const std::vector<config::SequenceState>& states() const { return states_; }
  int64_t initial_bytes() const;  // of one sequence

  // Handles of the states that a sequence starts with.
  std::vector<models::Tensor> InitialStates() const;
  // INVALID_ARGUMENT when the id does not fit the model's input for it.
  Status CheckId(const SequencePlace& place) const;
  // One tensor for each control input.
  std::vector<NamedTensor> Controls(const SequencePlace& place) const;

 private:
  struct Control {
    config::SequenceControl settings;
    models::DType dtype;
    models::Shape shape;
  };

  std::string model_;
  std::vector<models::TensorSpec> inputs_;
  std::vector<models::TensorSpec> outputs_;
  std::vector<Control> controls_;
  std::vector<config::SequenceState> states_;
  std::vector<models::Tensor> initial_;
};

}  // namespace millrace::handlers
