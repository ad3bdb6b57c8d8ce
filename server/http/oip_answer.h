// The answer to an infer request, in JSON or with tensors behind it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "server/http/message.h"

namespace millrace::server::http {

struct InferAnswerShape {
  std::string model;
  std::string version;
  std::optional<std::string> id;
  bool binary = false;  // outputs behind the JSON: all, but for those named
  std::map<std::string, bool> binary_by_name;
  bool batch_statistics = false;  // as parameters of the response
};

// FAILED_PRECONDITION when a value cannot be said in JSON.
StatusOr<HttpResponse> InferResponse(const InferAnswerShape& shape,
                                     const handlers::TensorResponse& result);

}  // namespace millrace::server::http
