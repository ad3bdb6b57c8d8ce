// The passes over a graph, in the order in which they run. Those of load time
// see no shapes and make new weights once; the others run for each set of input
// sizes and leave weights alone.
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// ---- at load time ----
// A graph whose weights are 16-bit floats is computed in FP32; its inputs and
// outputs keep their types.
void WidenHalves(Graph& graph);
// A batch normalisation behind a convolution becomes part of its weights.
void FoldBatchNorms(Graph& graph);
// Attention and layers with constant weights, which can round the factors of
// their products to bf16, by the names that a QuantizationTable has for them.
std::vector<std::string> RoundableLayers(const Graph& graph);
// They are to do so, but for those named. INVALID_ARGUMENT names one that the
// graph has not.
Status RoundLayers(Graph& graph, const std::vector<std::string>& f32_layers);

// ---- for a graph whose values have types ----
// What exporters spell out and the passes behind need not see goes: sizes that
// broadcasting gives anyway, batches of matrices joined to one axis.
void Simplify(Graph& graph);
// Embedding bags that are all of one size need no offsets.
void FixBags(Graph& graph);
// Einsums of two operands become products.
void SpellOutEinsums(Graph& graph);
// Spelled-out GELU becomes the operator.
void RecogniseGelu(Graph& graph);
// Quantised graphs do not round what is multiplied as floats anyway.
void KeepProductsFloat(Graph& graph);
// Spelled-out attention becomes the operator.
void RecogniseAttention(Graph& graph);
// ChooseLayout of layout.h comes next.
// Attention reads queries, keys and values where one layer made them side by
// side.
void ReadHeadsInPlace(Graph& graph);
// Products are written in the order of axes that is wanted of them.
void WriteProductsInPlace(Graph& graph);
// Bias, activation, residual and gate join the convolution or linear layer
// before them.
void FuseEpilogues(Graph& graph);
// Layers, pools and functions between DequantizeLinear and QuantizeLinear work
// on the bytes.
void FuseQuantised(Graph& graph);
// LayersBeforeCopies of copied_pixels.h comes next.
// Chains of elementwise operators become one node.
void FusePointwise(Graph& graph);
// Such a node reads and writes bytes where they are dequantised before and
// quantised behind.
void FuseQuantisedPointwise(Graph& graph);

// All of the second kind.
StatusOr<Graph> Optimise(Graph typed);

}  // namespace millrace::models::graph
