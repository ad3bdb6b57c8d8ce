// What clients change of the server through the protocols, beside its models;
// both wires share it.
#pragma once

#include <cstdint>

#include "server/log_settings.h"
#include "server/shared_memory.h"

namespace millrace::server {

struct ProtocolState {
  ProtocolState(bool shared_memory, uint64_t max_tensor_bytes)
      : regions(shared_memory, max_tensor_bytes) {}

  SharedRegions regions;
  LogControl log;
};

}  // namespace millrace::server
