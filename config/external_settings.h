// A model that is a process of its own, in any language:
//
//   external:
//     command: [python3, handler.py]   # in the folder of the version
//     memory_limit: 1GiB               # of the process; 0: none
//     startup_timeout: 60s
//     response_timeout: 30s            # of one request, then it is restarted
//     shared_memory: 64MiB             # through which large tensors go
//     environment: {OMP_NUM_THREADS: 1}
//   instance_count: 2                  # processes
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct ExternalSettings {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment = {};
  int64_t memory_limit_bytes = int64_t{4} << 30;  // 0: none
  int64_t startup_timeout_ms = 60'000;
  int64_t response_timeout_ms = 30'000;
  int64_t shared_memory_bytes = int64_t{64} << 20;
};

// The value of the key `external` in config.yaml. May throw what yaml-cpp
// throws for values of another kind.
StatusOr<ExternalSettings> ReadExternal(const YAML::Node& node);

}  // namespace millrace::config
