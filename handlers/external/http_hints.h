// What a handler says of its answer over HTTP, in a tensor beside its results:
//
//   {"status": 207, "headers": {"X-Model": "b"}}
//
// Both may be absent.
#pragma once

#include <string_view>

#include "config/base/status.h"
#include "handlers/task.h"

namespace millrace::handlers {

// The name of that tensor.
inline constexpr std::string_view kHttpHints = "millrace.http";

// INTERNAL with reason handler_error for a status outside 200 to 599, more than
// 32 headers, and names or values that HTTP does not have (RFC 9110, section
// 5.5). Headers that the server itself sets are left out.
Status ReadHttpHints(std::string_view json, TaskResponse& response);

// The name of an output that becomes the Content-Type, which may be of a
// client. INTERNAL with reason handler_error where it has anything but
// printable ASCII, or more than 255 bytes.
Status CheckContentType(std::string_view name);

}  // namespace millrace::handlers
