// Quantised models at load: weights keep the integers they are made of, and the
// operators on integers become FP32 ones between DequantizeLinear and
// QuantizeLinear, the one form that passes know.
#pragma once

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// QLinearConv, QLinearMatMul with constant scales; MatMulInteger and
// ConvInteger of what DynamicQuantizeLinear makes, with the factors behind
// them; then every DequantizeLinear of a constant of INT8 or UINT8. Before the
// graph is folded.
Status KeepIntegers(Graph& graph);

}  // namespace millrace::models::graph
