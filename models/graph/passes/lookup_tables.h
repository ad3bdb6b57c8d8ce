// Functions from bytes to bytes: whatever elementwise operators stand between a
// DequantizeLinear and a QuantizeLinear is a table of 256 bytes, made by
// running them once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "models/graph/ir.h"
#include "models/graph/passes/editor.h"

namespace millrace::models::graph {

struct ByteFunction {
  ValueId of = kNoValue;  // the bytes it reads
  std::array<uint8_t, 256> table = {};

  bool IsIdentity() const;
  bool Rises() const;  // a larger byte never gives a smaller one
};

// The function from bytes to the value that `quantize` would make of
// `floats`, which has the same shape as those bytes.
std::optional<ByteFunction> ByteFunctionOf(const Graph& graph, Editor& editor,
                                           const Node& quantize,
                                           ValueId floats);

Tensor TableTensor(const ByteFunction& function);

// What moves, picks or joins values that are quantised before and behind does
// so with their bytes; functions of single values become tables.
void FunctionsOfBytes(Graph& graph);

}  // namespace millrace::models::graph
