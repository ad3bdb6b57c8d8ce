// What TorchServe's routes share: its words for errors, queries, and bodies as
// parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "handlers/task.h"
#include "server/http/message.h"

namespace millrace::server::http {

class Exchange;

// {"code": 404, "type": "ModelNotFoundException", "message": "..."}.
HttpResponse TorchServeErrorResponse(const Status& status);
// With the headers that TorchServe gives every response.
HttpResponse TorchServeResponse(int status, std::string body);
// {"status": "..."}.
HttpResponse TorchServeStatus(int status, std::string_view text);

// `missing` where the caller may not use that model or workflow: what it may
// not use, it does not see.
Status CheckMayUse(const Exchange& exchange, const std::string& name,
                   Status missing);

// Whether the path is one of TorchServe's own.
bool IsTorchServePath(std::string_view path);

using Fields = std::vector<std::pair<std::string, std::string>>;
// "a=1&b=x%20y"; a form's body, too. INVALID_ARGUMENT for broken escapes and
// more than 1,000 fields.
StatusOr<Fields> ParseFields(std::string_view text);
const std::string* FindField(const Fields& fields, std::string_view name);
// None when it is not there, empty, or no whole number of 32 bits: TorchServe
// takes its default then, and here the log says so.
std::optional<int64_t> NumberField(const Fields& fields, std::string_view name);
bool BoolField(const Fields& fields, std::string_view name, bool otherwise);

// A body by its Content-Type: the fields of a form, the parts of
// multipart/form-data, or all of it as one part without a name.
StatusOr<std::vector<handlers::TaskPart>> ReadParts(
    std::string_view content_type, std::string body);

}  // namespace millrace::server::http
