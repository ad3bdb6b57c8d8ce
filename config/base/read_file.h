// Files that a setting names: keys, certificates, authorities.
//
//   ASSIGN_OR_RETURN(std::string pem,
//                    ReadFileOf("ssl_cert_file", path, 4 << 20));
#pragma once

#include <cstddef>
#include <string>

#include "config/base/status.h"

namespace millrace {

// The whole file. FAILED_PRECONDITION at `setting` when it cannot be read, is
// a folder, or has more than `max_bytes`.
StatusOr<std::string> ReadFileOf(const char* setting, const std::string& path,
                                 size_t max_bytes);

}  // namespace millrace
