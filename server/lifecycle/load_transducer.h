// From the three files of a recogniser to a servable (transducer_model.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/pipeline_settings.h"
#include "config/schema.h"
#include "handlers/pool.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// Loads one graph as a servable of its own, by load_graph.h: on all of the
// model's cores, or on one of them.
using LoadPart = std::function<StatusOr<std::shared_ptr<Servable>>(
    ModelFacts facts, const config::ModelSettings& settings, bool one_core)>;

// `settings.path` is the encoder's file, `pipeline` has a transducer. Blocks
// for the load. INVALID_ARGUMENT and NOT_FOUND name the file that is wrong.
StatusOr<std::shared_ptr<Servable>> LoadTransducer(
    const ModelFacts& facts, const config::ModelSettings& settings,
    const config::PipelineSettings& pipeline, handlers::Pool* pool,
    MetricRegistry* metrics, const LoadPart& load_part);

}  // namespace millrace::server
