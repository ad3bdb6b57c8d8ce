// Requests of tasks over REST: as BYTES tensors of an infer body, as plain JSON
// with "inputs" or "instances", or as a raw body.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "handlers/task.h"
#include "server/http/message.h"

namespace millrace::server::http {

struct TaskInferBody {
  std::optional<std::string> id;
  handlers::TaskRequest request;  // but for deadline and trace
  bool binary = false;            // the output behind the JSON
};

// None where the inputs are tensors of numbers: the body asks the graph.
// `json_bytes`: where the JSON ends; all of the body if it is not given.
StatusOr<std::optional<TaskInferBody>> ReadTaskInfer(
    std::string_view body, std::optional<size_t> json_bytes);

// The answer to such a body.
HttpResponse TaskInferResponse(const std::string& model,
                               const std::string& version,
                               const TaskInferBody& shape,
                               const handlers::TaskResponse& response);

// The body of a plain request: JSON
//   {"inputs": "…" | ["…"], "parameters": {…}}           as Hugging Face, or
//   {"instances": [{"b64": "…"} | "…"]}                  as TensorFlow Serving,
// or the bytes of one item, whose parameters stand in the query.
StatusOr<handlers::TaskRequest> ReadTaskBody(const HttpRequest& head,
                                             std::string body);

// "image/jpeg" of "Image/JPEG; q=1".
std::string MediaType(std::string_view content_type);

}  // namespace millrace::server::http
