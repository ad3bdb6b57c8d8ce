// From a graph (a file of ONNX or torch.export, the folder of an encoder) to a
// servable: reads it, starts its batcher, makes its handlers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/timeline.h"
#include "config/pipeline_settings.h"
#include "config/schema.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "handlers/shadow/shadow_runner.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// By its name, or by what it holds; or the folder of an encoder.
bool IsGraphFile(const std::string& path);

// Completes `facts`. Blocks for the load. UNIMPLEMENTED names an operator that
// is missing. `cpus`: the model's, of this machine.
StatusOr<std::shared_ptr<Servable>> LoadGraph(
    ModelFacts facts, const config::ModelSettings& settings,
    const config::CpuSet& cpus, const config::Topology& topology,
    int64_t memory_limit_bytes, handlers::Pool* pool, MetricRegistry* metrics,
    Timeline* timeline, const config::PipelineSettings& pipeline = {},
    handlers::ShadowRunner* shadows = nullptr);

}  // namespace millrace::server
