#include "models/graph/pt2/sides.h"

namespace millrace::models::graph::pt2 {

Side SideOf(Lowering& n, std::string_view name) {
  const Argument* argument = n.spec().Find(name);
  if (argument != nullptr && argument->kind == Argument::Kind::kScalar) {
    return {.tensor = {}, .number = n.Number(name)};
  }
  return {.tensor = n.Arg(name), .number = {}};
}

void AddTo(Promotion& promotion, const Side& side) {
  if (side.tensor) {
    promotion.Add(side.tensor);
  } else {
    promotion.Add(side.number);
  }
}

ValueId As(Lowering& n, const Side& side, DType type) {
  return side.tensor ? n.emit().Cast(side.tensor.id, side.tensor.dtype(), type)
                     : n.emit().Value(side.number, type);
}

namespace {

DType Promoted(const Side& a, const Side& b) {
  Promotion promotion;
  AddTo(promotion, a);
  AddTo(promotion, b);
  return promotion.Type();
}

}  // namespace

Pair Operands(Lowering& n, bool to_float, std::string_view a_name,
              std::string_view b_name) {
  const Side a = SideOf(n, a_name);
  const Side b = SideOf(n, b_name);
  DType type = Promoted(a, b);
  if (to_float && !IsFloat(type)) type = DType::kF32;
  return {type, As(n, a, type), As(n, b, type)};
}

ValueId AngleOf(Emitter& e, DType type, ValueId y, ValueId x) {
  constexpr double kPi = 3.14159265358979323846;
  const ValueId zero = e.Number(0, type);
  const ValueId base = e.Op("Atan", {e.Op("Div", {y, x})});
  const ValueId turn = e.Op(
      "Where",
      {e.Op("Less", {y, zero}), e.Number(-kPi, type), e.Number(kPi, type)});
  const ValueId left =
      e.Op("Where", {e.Op("Less", {x, zero}), e.Op("Add", {base, turn}), base});
  const ValueId origin =
      e.Op("And", {e.Op("Equal", {y, zero}), e.Op("Equal", {x, zero})});
  return e.Op("Where", {origin, zero, left});
}

}  // namespace millrace::models::graph::pt2
