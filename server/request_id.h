// The id of a request: in its answer, its log lines and its trace.
//
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace millrace::server {

// `given` by the caller (the header or metadata x-request-id) where it is 1 to
// 128 printable ASCII characters without spaces, else a new one.
std::string RequestIdFrom(std::string_view given);

// Lower-case hexadecimal digits from the system's random source, at most 512.
std::string RandomHex(int num_digits);

}  // namespace millrace::server
