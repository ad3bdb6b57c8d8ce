// The body of an infer request (Open Inference Protocol, REST): JSON, behind
// which stand the tensors of those inputs that say binary_data_size, in their
// order (Triton's binary tensor data extension).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "handlers/sequences/sequence_place.h"
#include "models/tensor/tensor_spec.h"
#include "server/http/message.h"
#include "server/output_form.h"

namespace millrace::server::http {

struct InferBody {
  std::optional<std::string> id;
  handlers::TensorRequest request;  // but for deadline and trace
  handlers::SequencePlace sequence = {};
  // Of the request, as they came; null: none, or binary_data_output alone.
  std::shared_ptr<const nlohmann::ordered_json> parameters = {};
  // The response has parameters with its batch and its times.
  bool batch_statistics = false;
  // Outputs as bytes behind the JSON of the response, unless `forms` says it.
  bool binary = false;
  OutputForms forms;
};

// `json_bytes`: where the JSON ends; all of the body if it is not given. Inputs
// may lie in `regions`.
StatusOr<InferBody> ReadInferBody(std::string_view body,
                                  std::optional<size_t> json_bytes,
                                  const SharedRegions& regions);
// Whether ReadInferBody may read a region, which can take long: the key stands
// in the JSON, or an escape that can spell it.
bool MayNameRegion(std::string_view json);
// A body of the one input's bytes alone, of which each dimension but one must
// be known; the first is 1 where it is not. All outputs are wanted as bytes.
// `what` begins errors.
StatusOr<InferBody> ReadRawBody(
    std::string_view body, const std::vector<models::TensorSpec>& inputs,
    std::string_view what =
        "a body without JSON (Inference-Header-Content-"
        "Length: 0)");

// Inference-Header-Content-Length, within a body of so many bytes; 0: no JSON.
StatusOr<std::optional<size_t>> ReadJsonBytes(const HttpRequest& request,
                                              size_t body_bytes);

}  // namespace millrace::server::http
