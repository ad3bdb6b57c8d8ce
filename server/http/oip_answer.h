// The answer to an infer request, in JSON or with tensors behind it.
#pragma once

#include <optional>
#include <string>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "server/http/message.h"
#include "server/output_form.h"

namespace millrace::server::http {

struct InferAnswerShape {
  std::string model;
  std::string version;
  std::optional<std::string> id;
  bool binary = false;  // outputs behind the JSON, unless `forms` says it
  OutputForms forms;
  bool batch_statistics = false;  // as parameters of the response
  // JSON of others; empty: none. Not beside batch_statistics.
  std::string parameters = {};
};

// FAILED_PRECONDITION when a value cannot be said in JSON. Outputs that are
// wanted in shared memory are written to `regions`.
StatusOr<HttpResponse> InferResponse(const InferAnswerShape& shape,
                                     const handlers::TensorResponse& result,
                                     const SharedRegions& regions);

}  // namespace millrace::server::http
