// The table of all operators, one family a file.
#pragma once

#include <span>

#include "models/graph/op.h"

namespace millrace::models::graph {

std::span<const OpDef> BinaryOps();  // binary.cc: Add, Mul, …

inline constexpr std::span<const OpDef> (*kOpFamilies[])() = {
    BinaryOps,
};

}  // namespace millrace::models::graph
