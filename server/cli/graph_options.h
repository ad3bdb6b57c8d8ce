// How the verbs that run a graph prepare it: flags they share.
#pragma once

#include <string>

#include "config/base/status.h"
#include "models/graph/execution_context.h"
#include "server/cli/args.h"
#include "server/cli/tool_model.h"

namespace millrace::server {

inline constexpr FlagSpec kPrecisionFlag = {
    "precision", "TYPE", "f32 (default), bf16, or int8 as --quantization says"};
inline constexpr FlagSpec kQuantizationFlag = {
    "quantization", "FILE", "of millrace quantize (default: MODEL.quant.json)"};

// As --threads, --isa, --precision and --quantization say of the model at
// `path`; a verb may lack the last two.
StatusOr<models::graph::InstanceOptions> GraphOptions(const ParsedArgs& args,
                                                      const std::string& path);

}  // namespace millrace::server
