// Status ↔ what each protocol calls it, in one table.
//
//   code                 HTTP   OpenAI type              gRPC
//   INVALID_ARGUMENT     400    invalid_request_error    3
//   OUT_OF_RANGE         400    invalid_request_error    11
//   FAILED_PRECONDITION  400    invalid_request_error    9
//   UNAUTHENTICATED      401    authentication_error     16
//   PERMISSION_DENIED    403    permission_error         7
//   NOT_FOUND            404    not_found_error          5
//   ALREADY_EXISTS       409    conflict_error           6
//   RESOURCE_EXHAUSTED   429    rate_limit_error         8
//   CANCELLED            499    cancelled_error          1
//   UNIMPLEMENTED        501    not_implemented_error    12
//   UNAVAILABLE          503    unavailable_error        14
//   DEADLINE_EXCEEDED    504    timeout_error            4
//   all else             500    server_error             as is
//
// A status whose reason() names a transport refusal ("method_not_allowed",
// "payload_too_large", "unsupported_media_type", "headers_too_large",
// "request_timeout") has that HTTP status (405, 413, 415, 431, 408) instead,
// and "disk_full" has 507 (RFC 4918, section 11.5).
#pragma once

#include <string>

#include "config/base/status.h"

namespace millrace::server {

int HttpStatusOf(const Status& status);

// {"error":{"message","type","param","code"}}: param is the status' field or
// null, code its reason or null.
std::string OpenAiErrorBody(const Status& status);
// {"error":"message"}, for the Open Inference Protocol's routes.
std::string OipErrorBody(const Status& status);

}  // namespace millrace::server
