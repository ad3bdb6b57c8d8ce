// What passes over quantised graphs share: which nodes turn bytes to numbers
// and back by one scale for all, and which weights are integers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/graph/fused_params.h"
#include "models/graph/ir.h"
#include "models/graph/passes/editor.h"

namespace millrace::models::graph {

// Of QuantizeLinear to, or DequantizeLinear from, UINT8 by one constant scale.
std::optional<ByteScale> ByteScaleOf(const Graph& graph, const Node& node);

// Calls body(node, scale) for each QuantizeLinear that has one.
template <typename Body>
void EachQuantize(Graph& graph, Body body) {
  for (Node& node : graph.nodes) {
    if (!node.Is("QuantizeLinear")) continue;
    if (const auto scale = ByteScaleOf(graph, node)) body(node, *scale);
  }
}

// The DequantizeLinear that makes this value of bytes, with its scale.
struct Dequantised {
  ValueId bytes = kNoValue;
  ByteScale scale;
};
std::optional<Dequantised> DequantisedOf(const Graph& graph, Editor& editor,
                                         ValueId id);

// The same with a scale and a zero point that are known in a run only.
struct Measured {
  ValueId bytes = kNoValue;
  ValueId scale = kNoValue;
  ValueId zero = kNoValue;
};
std::optional<Measured> MeasuredOf(const Graph& graph, Editor& editor,
                                   ValueId id);

// INT8 activations become UINT8 ones with a zero point 128 higher, where they
// are made by QuantizeLinear and read by DequantizeLinear alone.
void UnsignBytes(Graph& graph);

// The weight as outputs [n][k] of bytes with sign, without zero points.
// `outputs_axis` is where outputs stand in the constant; the order of k is that
// of the other axes. Nothing where they do not fit, or scales are not those of
// outputs.
struct SignedWeight {
  std::vector<int8_t> values;
  std::vector<int32_t> sums;  // of the values of each output
  int64_t n = 0;
  int64_t k = 0;
};
std::optional<SignedWeight> SignedWeightOf(const Integers& integers,
                                           int outputs_axis);
// Whether there is one, without reading the values.
bool HasSignedWeight(const Integers& integers, int outputs_axis);
// What Integers::fits_signed says, from all of its values.
bool FitsSigned(const Integers& integers);

}  // namespace millrace::models::graph
