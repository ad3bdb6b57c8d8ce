// Graphs on GPUs: which ones, and at what precision.
#pragma once

#include <memory>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"
#include "models/graph/device.h"
#include "models/graph/execution_context.h"
#include "server/lifecycle/graph_precision.h"

namespace millrace::server {

using Gpus = std::vector<std::shared_ptr<models::graph::GraphDevice>>;

// The GPUs that the settings name; none where the cores compute. With "auto"
// they also compute what no GPU can do as asked, and a line in the log says
// why.
StatusOr<Gpus> GpusFor(const config::ModelSettings& settings);

// On each of GpusFor. f16 and bf16 are held against f32 on the samples, on the
// first GPU; where they are further off than max_precision_error the graph is
// served in tf32. int8 is guarded as on the cores, layer by layer; what is not
// in bytes is tf32.
StatusOr<PreparedGraph> PrepareOnGpus(Gpus gpus,
                                      const models::graph::Graph& graph,
                                      const config::ModelSettings& settings,
                                      models::graph::InstanceOptions options);

}  // namespace millrace::server
