// Answers that are compressed because the client's Accept-Encoding asks for it.
#pragma once

#include <cstddef>

#include "server/http/message.h"

namespace millrace::server::http {

// Of inference's answers, which are mostly numbers as text or bytes. Smaller
// ones do not become smaller.
inline constexpr size_t kLeastCompressedInfer = 256;
// Of other JSON and of metrics: most of what is smaller goes in one packet as
// it is.
inline constexpr size_t kLeastCompressedJson = 1024;

// Compresses a whole body of `least` bytes or more, unless it is compressed
// already or nothing was asked for. A body that cannot be compressed stays.
void Compress(const HttpRequest& request, size_t least, HttpResponse& response);
// The same for bodies of JSON alone.
void CompressJson(const HttpRequest& request, HttpResponse& response);

}  // namespace millrace::server::http
