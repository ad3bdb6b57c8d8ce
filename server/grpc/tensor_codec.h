// Tensors of a ModelInfer request for a graph, and of its answer. Values come
// raw (raw_input_contents) or typed (contents), never mixed; the answer has the
// form of the request, but that half floats, which have no typed form, make it
// raw.
#pragma once

#include "config/base/status.h"
#include "handlers/handler.h"
#include "handlers/sequences/sequence_place.h"
#include "server/output_form.h"

namespace inference {
class ModelInferRequest;
class ModelInferResponse;
class ModelMetadataResponse;
}  // namespace inference

namespace millrace::server {

struct TensorCall {
  handlers::TensorRequest request;  // but for deadline and trace
  handlers::SequencePlace sequence = {};
  bool raw = true;  // form of request and response
  // The response has parameters with its batch and its times.
  bool batch_statistics = false;
  OutputForms forms;
};

// INVALID_ARGUMENT names the tensor or parameter at fault. Inputs may lie in
// `regions`; raw_input_contents has the others, in their order.
StatusOr<TensorCall> DecodeTensors(const inference::ModelInferRequest& request,
                                   const SharedRegions& regions);

// Fails when an output does not fit the shared memory that it is wanted in.
Status EncodeTensors(const handlers::TensorResponse& result, bool raw,
                     const OutputForms& forms, const SharedRegions& regions,
                     inference::ModelInferResponse* response);
// As parameters of the response.
void EncodeBatch(const handlers::BatchFacts& batch,
                 inference::ModelInferResponse* response);

// The graph's tensors, for ModelMetadata.
void DescribeTensors(const handlers::TensorHandler& handler,
                     inference::ModelMetadataResponse* metadata);

}  // namespace millrace::server
