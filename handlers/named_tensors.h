// Checks the named tensors of a request against the inputs and outputs of a
// model. Errors name the tensor and list what the model has.
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "models/tensor/tensor.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

// In the order of the specs; each of them once, and no other.
StatusOr<std::vector<models::Tensor>> InputsInOrder(
    std::vector<NamedTensor> given,
    const std::vector<models::TensorSpec>& specs, const std::string& model);

// Places among the specs of the outputs asked for, in the order of the request;
// all where none is.
StatusOr<std::vector<size_t>> OutputsWanted(
    const std::vector<std::string>& names,
    const std::vector<models::TensorSpec>& specs, const std::string& model);

// "'a', 'b'", for messages; "none" where there are none.
std::string NamesOf(const std::vector<models::TensorSpec>& specs);

// Type and shape; the graph checks its own inputs more closely.
Status CheckFits(const models::TensorSpec& spec, const models::Tensor& tensor,
                 const std::string& model);

}  // namespace millrace::handlers
