// Operands of binary operators with PyTorch's type promotion: tensors or
// numbers, cast to the type that PyTorch would compute in.
#pragma once

#include <string_view>

#include "models/graph/pt2/lowering.h"

namespace millrace::models::graph::pt2 {

struct Side {
  Operand tensor;
  Num number;
};

Side SideOf(Lowering& n, std::string_view name);
void AddTo(Promotion& promotion, const Side& side);
ValueId As(Lowering& n, const Side& side, DType type);

struct Pair {
  DType type;
  ValueId a;
  ValueId b;
};

Pair Operands(Lowering& n, bool to_float = false,
              std::string_view a_name = "self",
              std::string_view b_name = "other");

// The angle of the point (x, y), by Atan in each quadrant.
ValueId AngleOf(Emitter& e, DType type, ValueId y, ValueId x);

}  // namespace millrace::models::graph::pt2
