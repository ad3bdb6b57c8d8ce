// Tensors that callers have in another shape than the model: `reshape` of a
// config.pbtxt. The elements stay in their order.
//
//   request  [batch, 2, 2]  ->  model  [batch, 4]
//   request  [batch, 1]     ->  model  [batch]     (an empty shape)
//
// Sizes that vary (-1) keep their order, too, and what stands between them has
// as many elements on both sides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/reshape_settings.h"
#include "handlers/handler.h"
#include "handlers/messages.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

// Immutable; thread-safe.
class TensorReshapes {
 public:
  // Of a model with these inputs and outputs. INVALID_ARGUMENT at "reshape"
  // names the tensor and why it cannot have both shapes.
  static StatusOr<std::shared_ptr<const TensorReshapes>> Create(
      const config::ReshapeSettings& settings,
      const std::vector<models::TensorSpec>& inputs,
      const std::vector<models::TensorSpec>& outputs);

  // As callers have them.
  const std::vector<models::TensorSpec>& inputs() const { return inputs_; }
  const std::vector<models::TensorSpec>& outputs() const { return outputs_; }

  // INVALID_ARGUMENT names the input that does not fit; `model` is for the
  // message. Tensors without a reshape stay as they are.
  Status ToModel(const std::string& model,
                 std::vector<NamedTensor>* inputs) const;
  // INTERNAL where the model has given another shape than it declares.
  Status ToCaller(std::vector<NamedTensor>* outputs) const;

 private:
  TensorReshapes() = default;

  config::ReshapeSettings settings_;
  std::vector<models::TensorSpec> inputs_;
  std::vector<models::TensorSpec> outputs_;
};

// A handler of callers before one of the model's own shapes.
std::unique_ptr<TensorHandler> MakeReshapingHandler(
    std::unique_ptr<TensorHandler> inner, std::string model,
    std::shared_ptr<const TensorReshapes> reshapes);

}  // namespace millrace::handlers
