// Generation as tensors, the way Triton's language-model backends do it
// (handlers/generate_tensors.h has the tensors).
//
// Values come raw (raw_input_contents) or typed (contents), never mixed; the
// answer has the form of the request. Sampling fields may also stand in the
// request's parameters.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "config/base/status.h"
#include "handlers/messages.h"

namespace inference {
class ModelInferRequest;
class ModelInferResponse;
class ModelMetadataResponse;
}  // namespace inference

namespace millrace::server {

struct InferCall {
  handlers::TextPrompt prompt;
  handlers::GenerateOptions options;
  bool stream = false;
  bool raw = true;  // form of request and answer
  // triton_enable_empty_final_response: the last answer carries no tensors.
  bool empty_final_response = false;
  // The `timeout` parameter: microseconds this one request may take.
  std::optional<std::chrono::microseconds> timeout;
};

// All tensors raw or all typed, whatever kind of model they are for; those that
// lie in shared memory have neither, where they `may_share`.
Status CheckForm(const inference::ModelInferRequest& request, bool may_share);
// The `timeout` parameter in microseconds; 0 is none.
StatusOr<std::optional<std::chrono::microseconds>> ReadTimeout(
    const inference::ModelInferRequest& request);

// INVALID_ARGUMENT names the tensor, parameter or field at fault.
StatusOr<InferCall> DecodeInfer(const inference::ModelInferRequest& request);

// Starts an answer: model, version and id of the request.
void BeginResponse(const inference::ModelInferRequest& request,
                   const std::string& version,
                   inference::ModelInferResponse* response);
void AddTextOutput(const std::string& text, bool raw,
                   inference::ModelInferResponse* response);
void SetFinal(bool is_final, inference::ModelInferResponse* response);
// Finish reason and token counts, as parameters of the last answer.
void AddUsage(const handlers::GenerateEnd& end,
              inference::ModelInferResponse* response);

// The tensors above, for ModelMetadata.
void DescribeTensors(inference::ModelMetadataResponse* metadata);

}  // namespace millrace::server
