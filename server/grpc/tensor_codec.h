// Tensors of a ModelInfer request for a graph, and of its answer. Values come
// raw (raw_input_contents) or typed (contents), never mixed; the answer has the
// form of the request, but that half floats, which have no typed form, make it
// raw.
#pragma once

#include "config/base/status.h"
#include "handlers/handler.h"

namespace inference {
class ModelInferRequest;
class ModelInferResponse;
class ModelMetadataResponse;
}  // namespace inference

namespace millrace::server {

struct TensorCall {
  handlers::TensorRequest request;  // but for deadline and trace
  bool raw = true;                  // form of request and response
  // The response tells its batch and where its time went.
  bool batch_statistics = false;
};

// INVALID_ARGUMENT names the tensor or parameter at fault.
StatusOr<TensorCall> DecodeTensors(const inference::ModelInferRequest& request);

void EncodeTensors(const handlers::TensorResponse& result, bool raw,
                   inference::ModelInferResponse* response);
// As parameters of the response.
void EncodeBatch(const handlers::BatchFacts& batch,
                 inference::ModelInferResponse* response);

// The graph's tensors, for ModelMetadata.
void DescribeTensors(const handlers::TensorHandler& handler,
                     inference::ModelMetadataResponse* metadata);

}  // namespace millrace::server
