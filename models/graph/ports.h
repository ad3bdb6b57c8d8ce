// Inputs of a request against what the graph says of them.
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// What an input of this port must be, for messages: "FP32 [batch, 3, 224]".
std::string PortText(const Port& port, const std::vector<Symbol>& symbols);
// INVALID_ARGUMENT when types or sizes do not fit the ports or, taken together,
// a symbol would have two sizes or one outside of its range. `left_out`, by
// input, or empty: those that a request has not yet, which are not looked at.
Status CheckInputs(const std::vector<Port>& ports,
                   const std::vector<Symbol>& symbols,
                   const std::vector<Tensor>& inputs,
                   const std::vector<bool>& left_out = {});

}  // namespace millrace::models::graph
