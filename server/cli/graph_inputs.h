// The inputs with which a verb runs a graph: from a file, or made up.
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/execution_context.h"
#include "server/cli/args.h"

namespace millrace::server {

inline constexpr FlagSpec kInputFlag = {
    "input", "IN.npz", "the inputs, by name or in order (default: made up)"};
inline constexpr FlagSpec kSizesFlag = {
    "sizes", "NAME=N,…", "of made-up inputs, by the names inspect shows"};

// As --input or, without it, --sizes say.
StatusOr<std::vector<models::Tensor>> GraphInputs(
    const ParsedArgs& args, const models::graph::ExecutionContext& context);

// What they are, a line each, for people: where they come from and their sizes.
std::string InputsText(const ParsedArgs& args,
                       const models::graph::ExecutionContext& context,
                       const std::vector<models::Tensor>& inputs);

}  // namespace millrace::server
