// Bodies of /predictions as tensors, and tensors as JSON. A request is one row,
// as TorchServe's handlers get it, or a batch of rows when its value has all
// dimensions of the input.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "handlers/task.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::server::torchserve {

struct PredictionInputs {
  std::vector<handlers::NamedTensor> tensors;
  bool is_row = false;  // results are written without the batch dimension
};

// Each part is JSON (nested lists of numbers) or the raw bytes of a row. Parts
// belong to inputs by their names; a graph of one input also takes "data",
// "body" and a part without a name. A JSON object holds inputs by their names.
// INVALID_ARGUMENT names the input.
StatusOr<PredictionInputs> ReadTensors(
    std::vector<handlers::TaskPart> parts,
    const std::vector<models::TensorSpec>& specs);

// KServe v1: {"instances": [...]}, each one a row.
StatusOr<PredictionInputs> ReadInstances(
    const nlohmann::ordered_json& body,
    const std::vector<models::TensorSpec>& specs);

// The value of the only output, or an object of all by their names.
StatusOr<std::string> TensorsJson(
    const std::vector<handlers::NamedTensor>& outputs, bool is_row);

}  // namespace millrace::server::torchserve
