// A graph at the precision its settings ask for, as far as its results allow,
// and by the kernels that they ask for (graph_backend).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"
#include "models/graph/execution_context.h"
#include "models/graph/guard.h"
#include "models/graph/quantize/compare.h"
#include "models/graph/sample_inputs.h"

namespace millrace::server {

struct PreparedGraph {
  // On each device, or one on the cores.
  std::vector<std::shared_ptr<models::graph::CompiledGraph>> graphs;
  // Of the first; others may be made beside it.
  std::unique_ptr<models::graph::ExecutionContext> context;
  // Of the model's metadata, for people: what it runs at and what that costs.
  std::vector<std::pair<std::string, std::string>> parameters;
};

// `options` say everything but the precision. What became of it stands in the
// log, too. NOT_FOUND and INVALID_ARGUMENT name the file that is missing or
// does not fit.
StatusOr<PreparedGraph> PrepareGraph(models::graph::Graph graph,
                                     const config::ModelSettings& settings,
                                     models::graph::InstanceOptions options);

// The table of `millrace quantize` that the settings name, or MODEL.quant.json.
StatusOr<std::shared_ptr<const models::graph::QuantizationTable>>
QuantizationOf(const config::ModelSettings& settings);
// What the guard said of a graph at this precision, into the log and into
// parameters.
std::vector<std::pair<std::string, std::string>> TellGuarded(
    const config::ModelSettings& settings, const std::string& precision,
    const models::graph::PrecisionReport& report);

// What a graph at reduced precision is held against f32 on: the files that the
// settings name, else one made up. INVALID_ARGUMENT: none can be made up.
StatusOr<models::graph::TensorSets> PrecisionSamples(
    const config::GraphSettings& settings, const models::graph::Graph& graph,
    models::graph::LeftOutSizes left_out);

}  // namespace millrace::server
