// Comparisons, logic, bits, choices between two operands, and bounds.
#include <array>
#include <optional>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/sides.h"

namespace millrace::models::graph::pt2 {
namespace {

void Compare(Lowering& n, std::string_view op, bool negate = false) {
  const Pair p = Operands(n);
  ValueId y = n.emit().Op(op, {p.a, p.b});
  if (negate) y = n.emit().Op("Not", {y});
  n.ReturnAs(DType::kBool, y);
}
void Eq(Lowering& n) { Compare(n, "Equal"); }
void Ne(Lowering& n) { Compare(n, "Equal", true); }
void Lt(Lowering& n) { Compare(n, "Less"); }
void Le(Lowering& n) { Compare(n, "LessOrEqual"); }
void Gt(Lowering& n) { Compare(n, "Greater"); }
void Ge(Lowering& n) { Compare(n, "GreaterOrEqual"); }

void Logical(Lowering& n, std::string_view op) {
  const Side a = SideOf(n, "self");
  const Side b = SideOf(n, "other");
  n.ReturnAs(DType::kBool,
             n.emit().Op(op, {As(n, a, DType::kBool), As(n, b, DType::kBool)}));
}
void LogicalAnd(Lowering& n) { Logical(n, "And"); }
void LogicalOr(Lowering& n) { Logical(n, "Or"); }
void LogicalXor(Lowering& n) { Logical(n, "Xor"); }

void Bitwise(Lowering& n, std::string_view of_bools,
             std::string_view of_integers) {
  const Pair p = Operands(n);
  n.ReturnAs(
      p.type,
      n.emit().Op(p.type == DType::kBool ? of_bools : of_integers, {p.a, p.b}));
}
void BitwiseAnd(Lowering& n) { Bitwise(n, "And", "BitwiseAnd"); }
void BitwiseOr(Lowering& n) { Bitwise(n, "Or", "BitwiseOr"); }
void BitwiseXor(Lowering& n) { Bitwise(n, "Xor", "BitwiseXor"); }

void ShiftBits(Lowering& n, const char* direction) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type, n.emit().Op("BitShift", {p.a, p.b},
                                 {{"direction", std::string(direction)}}));
}
void ShiftLeft(Lowering& n) { ShiftBits(n, "LEFT"); }
void ShiftRight(Lowering& n) { ShiftBits(n, "RIGHT"); }

ValueId Condition(Lowering& n, std::string_view name) {
  const Operand condition = n.Arg(name);
  return n.emit().Cast(condition.id, condition.dtype(), DType::kBool);
}

void Where(Lowering& n) {
  const ValueId condition = Condition(n, "condition");
  const Pair p = Operands(n);
  n.ReturnAs(p.type, n.emit().Op("Where", {condition, p.a, p.b}));
}

void MaskedFill(Lowering& n) {
  const Operand x = n.Arg("self");
  const ValueId value = As(n, SideOf(n, "value"), x.dtype());
  n.ReturnAs(x.dtype(),
             n.emit().Op("Where", {Condition(n, "mask"), value, x.id}));
}

// Bounds are numbers or tensors; either may be missing.
void Clamp(Lowering& n) {
  const Operand x = n.Arg("self");
  std::array<std::optional<Side>, 2> bounds;
  Promotion promotion;
  promotion.Add(x);
  constexpr std::string_view kNames[] = {"min", "max"};
  bool are_numbers = true;
  for (size_t i = 0; i < 2; ++i) {
    if (!n.Has(kNames[i])) continue;
    bounds[i] = SideOf(n, kNames[i]);
    AddTo(promotion, *bounds[i]);
    are_numbers &= !bounds[i]->tensor;
  }
  const DType type = promotion.Type();
  ValueId y = n.emit().Cast(x.id, x.dtype(), type);
  std::array<ValueId, 2> values = {kNoValue, kNoValue};
  for (size_t i = 0; i < 2; ++i) {
    if (bounds[i]) values[i] = As(n, *bounds[i], type);
  }
  if (are_numbers) {
    y = n.emit().Op("Clip", {y, values[0], values[1]});
  } else {
    if (bounds[0]) y = n.emit().Op("Max", {y, values[0]});
    if (bounds[1]) y = n.emit().Op("Min", {y, values[1]});
  }
  n.ReturnAs(type, y);
}

constexpr AtenOp kRows[] = {
    {"aten.eq.Tensor", Eq},
    {"aten.eq.Scalar", Eq},
    {"aten.ne.Tensor", Ne},
    {"aten.ne.Scalar", Ne},
    {"aten.lt.Tensor", Lt},
    {"aten.lt.Scalar", Lt},
    {"aten.le.Tensor", Le},
    {"aten.le.Scalar", Le},
    {"aten.gt.Tensor", Gt},
    {"aten.gt.Scalar", Gt},
    {"aten.ge.Tensor", Ge},
    {"aten.ge.Scalar", Ge},
    {"aten.logical_and.default", LogicalAnd},
    {"aten.logical_or.default", LogicalOr},
    {"aten.logical_xor.default", LogicalXor},
    {"aten.bitwise_and.Tensor", BitwiseAnd},
    {"aten.bitwise_and.Scalar", BitwiseAnd},
    {"aten.bitwise_or.Tensor", BitwiseOr},
    {"aten.bitwise_or.Scalar", BitwiseOr},
    {"aten.bitwise_xor.Tensor", BitwiseXor},
    {"aten.bitwise_xor.Scalar", BitwiseXor},
    {"aten.__and__.Tensor", BitwiseAnd},
    {"aten.__and__.Scalar", BitwiseAnd},
    {"aten.__or__.Tensor", BitwiseOr},
    {"aten.__or__.Scalar", BitwiseOr},
    {"aten.__xor__.Tensor", BitwiseXor},
    {"aten.__xor__.Scalar", BitwiseXor},
    {"aten.bitwise_left_shift.Tensor", ShiftLeft},
    {"aten.bitwise_left_shift.Tensor_Scalar", ShiftLeft},
    {"aten.bitwise_right_shift.Tensor", ShiftRight},
    {"aten.bitwise_right_shift.Tensor_Scalar", ShiftRight},
    {"aten.__lshift__.Scalar", ShiftLeft},
    {"aten.__rshift__.Scalar", ShiftRight},
    {"aten.where.self", Where},
    {"aten.where.Scalar", Where},
    {"aten.where.ScalarOther", Where},
    {"aten.where.ScalarSelf", Where},
    {"aten.masked_fill.Scalar", MaskedFill},
    {"aten.masked_fill.Tensor", MaskedFill},
    {"aten.clamp.default", Clamp},
    {"aten.clamp.Tensor", Clamp},
    {"aten.clip.default", Clamp},
    {"aten.clamp_min.default", Clamp},
    {"aten.clamp_min.Tensor", Clamp},
    {"aten.clamp_max.default", Clamp},
    {"aten.clamp_max.Tensor", Clamp},
};

}  // namespace

std::span<const AtenOp> CompareRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
