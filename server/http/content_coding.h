// gzip and deflate of bodies (RFC 9110, section 8.4.1), by zlib.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::server::http {

// Of one call, in or out: zlib counts in 32 bits.
inline constexpr size_t kMostCodedBytes = size_t{1} << 30;

enum class ContentCoding { kIdentity, kGzip, kDeflate };

// Of a Content-Encoding header; empty is kIdentity. INVALID_ARGUMENT, because
// of "unsupported_media_type", for others.
StatusOr<ContentCoding> ReadContentCoding(std::string_view header);
// The one of ours that an Accept-Encoding header likes best; qualities of 0
// are refusals.
ContentCoding ChooseContentCoding(std::string_view accepted);
// "gzip", "deflate"; empty for kIdentity.
std::string_view ContentCodingName(ContentCoding coding);

// INVALID_ARGUMENT for bytes that are not of this coding or end early, with the
// reason payload_too_large as soon as there are more than `max_bytes`, or where
// there are more than kMostCodedBytes; RESOURCE_EXHAUSTED without memory.
StatusOr<std::string> Decoded(std::string_view bytes, ContentCoding coding,
                              int64_t max_bytes);
// At most kMostCodedBytes. RESOURCE_EXHAUSTED without memory.
StatusOr<std::string> Encoded(std::string_view bytes, ContentCoding coding);

}  // namespace millrace::server::http
