// Tasks over ModelInfer: inputs of BYTES, one output of BYTES.
#pragma once

#include "config/base/status.h"
#include "handlers/task.h"

namespace inference {
class ModelInferRequest;
class ModelInferResponse;
}  // namespace inference

namespace millrace::server {

struct TaskCall {
  handlers::TaskRequest request;  // but for deadline and trace
  bool raw = true;                // form of request and response
};

// Whether the inputs are BYTES; else they are tensors for the graph.
bool AsksTask(const inference::ModelInferRequest& request);
// INVALID_ARGUMENT names the input or output at fault.
StatusOr<TaskCall> DecodeTask(const inference::ModelInferRequest& request);
void EncodeTask(const handlers::TaskResponse& response, bool raw,
                inference::ModelInferResponse* to);

}  // namespace millrace::server
