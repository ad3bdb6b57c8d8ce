// From a decoder (GGUF, Hugging Face folder) to a servable that makes vectors
// of texts.
#pragma once

#include <functional>
#include <memory>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// What the settings say, or else what the model's files do.
bool IsEmbeddingModel(const config::ModelSettings& settings);

// Completes `facts`. Blocks for the load.
StatusOr<std::shared_ptr<Servable>> LoadEmbeddingModel(
    ModelFacts facts, const config::ModelSettings& settings,
    const config::CpuSet& team, int64_t memory_limit_bytes,
    handlers::Pool* pool, MetricRegistry* metrics,
    std::function<void(double)> progress);

}  // namespace millrace::server
