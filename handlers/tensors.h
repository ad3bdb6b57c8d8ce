// The handler of graphs: named tensors to the graph's inputs and back.
#pragma once

#include <memory>
#include <string>

#include "handlers/handler.h"
#include "handlers/pool.h"
#include "scheduler/batcher.h"

namespace millrace::handlers {

// All outlive the handler and its requests.
struct TensorParts {
  std::string model;  // for messages
  scheduler::Batcher* batcher = nullptr;
  Pool* pool = nullptr;  // responses are given out on its threads
  const Clock* clock = &Clock::Real();
};

std::unique_ptr<TensorHandler> MakeTensorHandler(TensorParts parts);

}  // namespace millrace::handlers
