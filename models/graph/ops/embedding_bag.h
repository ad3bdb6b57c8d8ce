// EmbeddingBag by the kernels that pool rows (models/cpu/pool_rows.h).
#pragma once

#include <string>

#include "models/cpu/pool_rows.h"
#include "models/graph/op.h"

namespace millrace::models::graph {

// What messages call the operands: what a client knows them by.
struct BagNames {
  std::string indices = "indices";
  std::string offsets = "offsets";
  std::string table = "weight";
};

// Whether the kernels take the node, whose table is of this type; those of
// doubles, and halves that give halves, go by the plain loop.
bool PoolsByKernel(const Node& node, DType table);

// This member's part of the bags, shared by their rows. OUT_OF_RANGE names the
// index that is no row of the table, or the offset that falls.
Status RunBags(const Call& call, const Result& result, const Team& team,
               PoolRows pool, const BagNames& names);

}  // namespace millrace::models::graph
