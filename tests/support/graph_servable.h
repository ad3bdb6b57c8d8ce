// A graph as a servable, with a real context behind it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "handlers/pool.h"
#include "handlers/tensors.h"
#include "models/graph/execution_context.h"
#include "scheduler/batcher.h"
#include "server/lifecycle/graph_model.h"

namespace millrace::support {

// Its answers go home on the pool's threads. With several devices a number of
// instances is that of each of them.
inline std::shared_ptr<server::GraphModel> GraphServable(
    const std::string& id, models::graph::Graph graph, handlers::Pool* pool,
    int64_t num_devices = 1) {
  auto context = models::graph::CreateInstance(std::move(graph), {});
  if (!context.ok()) {
    std::fprintf(stderr, "%s\n", context.status().ToString().c_str());
    std::abort();
  }
  const auto make_contexts = [graph = (*context)->compiled_graph(),
                              num_devices](int64_t count) {
    server::GraphModel::Contexts contexts;
    for (int64_t i = 0; i < count * num_devices; ++i) {
      contexts.push_back(models::graph::ExecutionContext::Create(graph, {}));
    }
    return contexts;
  };
  auto batcher = scheduler::Batcher::Create(
      *std::move(context), {.model = id, .max_queue_size = 8}, nullptr);
  auto handler = handlers::MakeTensorHandler(
      {.model = id, .batcher = batcher.get(), .pool = pool});
  return std::make_shared<server::GraphModel>(
      server::ModelFacts{
          .id = id, .created_unix = 1700000000, .platform = "millrace_onnx"},
      std::move(batcher), std::move(handler), make_contexts, nullptr, nullptr,
      nullptr, nullptr, nullptr, num_devices);
}

}  // namespace millrace::support
