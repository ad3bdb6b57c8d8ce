// The body of an infer request (Open Inference Protocol, REST): JSON, behind
// which stand the tensors of those inputs that say binary_data_size, in their
// order (Triton's binary tensor data extension).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "server/http/message.h"

namespace millrace::server::http {

struct InferBody {
  std::optional<std::string> id;
  handlers::TensorRequest request;  // but for deadline and trace
  // The response tells its batch and where its time went.
  bool batch_statistics = false;
  // Outputs as bytes behind the JSON of the answer: all, but for those named.
  bool binary = false;
  std::map<std::string, bool> binary_by_name;
};

// `json_bytes`: where the JSON ends; all of the body if it is not told.
StatusOr<InferBody> ReadInferBody(std::string_view body,
                                  std::optional<size_t> json_bytes);

// Inference-Header-Content-Length, within a body of so many bytes.
StatusOr<std::optional<size_t>> ReadJsonBytes(const HttpRequest& request,
                                              size_t body_bytes);

}  // namespace millrace::server::http
