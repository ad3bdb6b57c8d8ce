// A graph as a servable, with a real executor behind it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "handlers/pool.h"
#include "handlers/tensors.h"
#include "models/graph/executor.h"
#include "scheduler/batcher.h"
#include "server/lifecycle/manager.h"

namespace millrace::support {

// Its answers go home on the pool's threads.
inline std::shared_ptr<server::Servable> GraphServable(
    const std::string& id, models::graph::Graph graph, handlers::Pool* pool) {
  auto executor = models::graph::Executor::Create(std::move(graph), {});
  if (!executor.ok()) {
    std::fprintf(stderr, "%s\n", executor.status().ToString().c_str());
    std::abort();
  }
  auto servable = std::make_shared<server::Servable>();
  servable->id = id;
  servable->created_unix = 1700000000;
  servable->platform = "millrace_onnx";
  servable->batcher = scheduler::Batcher::Create(
      *std::move(executor), {.model = id, .max_queue_size = 8}, nullptr);
  servable->tensor_handler = handlers::MakeTensorHandler(
      {.model = id, .batcher = servable->batcher.get(), .pool = pool});
  return servable;
}

}  // namespace millrace::support
