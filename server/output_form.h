// The form of an output in the response, as clients ask for it over REST and
// gRPC in the parameters of a requested output.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "server/shared_memory.h"

namespace millrace::server {

struct OutputForm {
  // REST: bytes behind the JSON; none: as the request says of all.
  std::optional<bool> binary = {};
  // The best so many classes of each row as BYTES; 0: the values.
  int64_t classes = 0;
  // Where the values go instead of the response.
  std::optional<SharedSpan> shared = {};
};

using OutputForms = std::map<std::string, OutputForm>;  // by name

}  // namespace millrace::server
