// Tables of which a run reads some rows: those of embeddings and embedding
// bags. They stay in the model's file, mapped, and may be larger than memory.
#pragma once

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Says of each large table that only rows of it are read, at random, so that
// a row that is not in memory costs a read of its own page. Small tables are
// left to the system, which has them in memory after few large reads.
void ReadRowsAtRandom(const Graph& graph);

}  // namespace millrace::models::graph
