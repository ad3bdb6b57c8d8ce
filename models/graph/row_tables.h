// Tables of which a run reads some rows: those of embeddings and embedding
// bags. They stay in the model's file, mapped, and may be larger than memory.
#pragma once

#include <cstdint>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Smaller ones may be copied, and are left to the system, which has them in
// memory after few large reads.
inline constexpr int64_t kLargeTableBytes = int64_t{256} << 20;

// Whether the node reads rows of its first operand.
bool ReadsRows(const Graph& graph, const Node& node);

// Says of each large table that only rows of it are read, at random, so that
// a row that is not in memory costs a read of its own page.
void ReadRowsAtRandom(const Graph& graph);

}  // namespace millrace::models::graph
