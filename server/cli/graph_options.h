// How the verbs that run a graph prepare it: flags they share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/execution_context.h"
#include "server/cli/args.h"
#include "server/cli/tool_model.h"

namespace millrace::server {

inline constexpr FlagSpec kPrecisionFlag = {
    "precision", "TYPE",
    "f32 (default on a CPU), tf32 (default on a GPU), f16 (GPU), bf16, or int8 "
    "as --quantization says (CPU)"};
inline constexpr FlagSpec kGraphBackendFlag = {
    "graph-backend", "NAME",
    "kernels of layers: millrace (default), onednn, or auto: measured first"};
inline constexpr FlagSpec kQuantizationFlag = {
    "quantization", "FILE", "of millrace quantize (default: MODEL.quant.json)"};
inline constexpr FlagSpec kConvFlag = {
    "conv-backend", "NAME",
    "on a GPU, for convolutions of graphs: native, or cudnn"};

// As --threads, --isa, --device, --precision, --gemm-backend, --conv-backend
// and --quantization say of the model at `path`; a verb may lack the last five.
StatusOr<models::graph::InstanceOptions> GraphOptions(const ParsedArgs& args,
                                                      const std::string& path);

// A graph that is ready to run, and what it is to run on.
struct GraphRun {
  std::unique_ptr<models::graph::ExecutionContext> context;
  std::vector<models::Tensor> inputs;
};
// By --graph-backend and the flags of GraphInputs. Prints what auto chose and
// what inputs were made up.
StatusOr<GraphRun> PrepareGraphRun(const ParsedArgs& args,
                                   models::graph::Graph graph,
                                   models::graph::InstanceOptions options);

}  // namespace millrace::server
