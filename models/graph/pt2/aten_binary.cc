// Arithmetic of two operands, of which one may be a number.
#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/sides.h"

namespace millrace::models::graph::pt2 {
namespace {

// `b` times the number "alpha", which is 1 as a rule.
ValueId TimesAlpha(Lowering& n, DType type, ValueId b) {
  const Num alpha = n.Number("alpha", Num::Of(1));
  if (alpha.known() && alpha.AsReal() == 1) return b;
  return n.emit().Op("Mul", {b, n.emit().Value(alpha, type)});
}

void Add(Lowering& n) {
  const Pair p = Operands(n);
  if (p.type == DType::kBool) {
    return n.ReturnAs(p.type, n.emit().Op("Or", {p.a, p.b}));
  }
  n.ReturnAs(p.type, n.emit().Op("Add", {p.a, TimesAlpha(n, p.type, p.b)}));
}

void Sub(Lowering& n) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type, n.emit().Op("Sub", {p.a, TimesAlpha(n, p.type, p.b)}));
}

void Rsub(Lowering& n) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type, n.emit().Op("Sub", {p.b, TimesAlpha(n, p.type, p.a)}));
}

void Mul(Lowering& n) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type,
             n.emit().Op(p.type == DType::kBool ? "And" : "Mul", {p.a, p.b}));
}

ValueId FloorOf(Lowering& n, const Pair& p) {
  Emitter& e = n.emit();
  if (IsFloat(p.type)) return e.Op("FloorDiv", {p.a, p.b});
  // Towards minus infinity: the rest has the divisor's sign.
  return e.Op("Div", {e.Op("Sub", {p.a, e.Op("Mod", {p.a, p.b})}), p.b});
}

ValueId TruncOf(Lowering& n, DType type, ValueId x) {
  Emitter& e = n.emit();
  return e.Op("Where", {e.Op("Less", {x, e.Number(0, type)}), e.Op("Ceil", {x}),
                        e.Op("Floor", {x})});
}

void Div(Lowering& n) {
  const std::string_view mode = n.Text("rounding_mode", "");
  const Pair p = Operands(n, mode.empty());
  if (mode == "floor") return n.ReturnAs(p.type, FloorOf(n, p));
  ValueId y = n.emit().Op("Div", {p.a, p.b});
  if (mode == "trunc" && IsFloat(p.type)) y = TruncOf(n, p.type, y);
  n.ReturnAs(p.type, y);
}

void FloorDivide(Lowering& n) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type, FloorOf(n, p));
}

void Remainder(Lowering& n) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type, n.emit().Op("Mod", {p.a, p.b}));
}

void Fmod(Lowering& n) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type, n.emit().Op("Mod", {p.a, p.b}, {{"fmod", int64_t{1}}}));
}

void Pow(Lowering& n) {
  const Side exponent = SideOf(n, "exponent");
  const Pair p = Operands(n, false, "self", "exponent");
  Emitter& e = n.emit();
  if (!exponent.tensor && exponent.number.known()) {
    // As PyTorch does, and exactly rounded.
    const double power = exponent.number.AsReal();
    if (power == 2) return n.ReturnAs(p.type, e.Op("Mul", {p.a, p.a}));
    if (power == 3) {
      return n.ReturnAs(p.type, e.Op("Mul", {e.Op("Mul", {p.a, p.a}), p.a}));
    }
    if (power == 0.5) return n.ReturnAs(p.type, e.Op("Sqrt", {p.a}));
    if (power == -0.5) {
      return n.ReturnAs(p.type, e.Op("Reciprocal", {e.Op("Sqrt", {p.a})}));
    }
    if (power == -1) return n.ReturnAs(p.type, e.Op("Reciprocal", {p.a}));
  }
  n.ReturnAs(p.type, e.Op("Pow", {p.a, p.b}));
}

ValueId Extreme(Lowering& n, const Pair& p, bool most) {
  if (p.type == DType::kBool) {
    return n.emit().Op(most ? "Or" : "And", {p.a, p.b});
  }
  return n.emit().Op(most ? "Max" : "Min", {p.a, p.b});
}
template <bool kMost>
void ExtremeOf(Lowering& n) {
  const Pair p = Operands(n);
  n.ReturnAs(p.type, Extreme(n, p, kMost));
}
// What is no number gives way to what is one.
template <bool kMost>
void ExtremeNumber(Lowering& n) {
  const Pair p = Operands(n);
  Emitter& e = n.emit();
  ValueId y = Extreme(n, p, kMost);
  if (IsFloat(p.type)) {
    y = e.Op("Where", {e.Op("IsNaN", {p.b}), p.a, y});
    y = e.Op("Where", {e.Op("IsNaN", {p.a}), p.b, y});
  }
  n.ReturnAs(p.type, y);
}

// self + value · tensor1 ∘ tensor2, ∘ being "Mul" or "Div".
void AddC(Lowering& n, std::string_view op) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId product = e.Op(op, {n.In("tensor1"), n.In("tensor2")});
  const ValueId value = e.Value(n.Number("value", Num::Of(1)), x.dtype());
  n.ReturnAs(x.dtype(), e.Op("Add", {x.id, e.Op("Mul", {product, value})}));
}
void AddCMul(Lowering& n) { AddC(n, "Mul"); }
void AddCDiv(Lowering& n) { AddC(n, "Div"); }

void Lerp(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId weight = As(n, SideOf(n, "weight"), x.dtype());
  const ValueId step = e.Op("Mul", {weight, e.Op("Sub", {n.In("end"), x.id})});
  n.ReturnAs(x.dtype(), e.Op("Add", {x.id, step}));
}

void Atan2(Lowering& n) {
  const Pair p = Operands(n, true);
  n.ReturnAs(p.type, AngleOf(n.emit(), p.type, p.a, p.b));
}

constexpr AtenOp kRows[] = {
    {"aten.add.Tensor", Add},
    {"aten.add.Scalar", Add},
    {"aten.sub.Tensor", Sub},
    {"aten.sub.Scalar", Sub},
    {"aten.rsub.Tensor", Rsub},
    {"aten.rsub.Scalar", Rsub},
    {"aten.mul.Tensor", Mul},
    {"aten.mul.Scalar", Mul},
    {"aten.div.Tensor", Div},
    {"aten.div.Scalar", Div},
    {"aten.div.Tensor_mode", Div},
    {"aten.div.Scalar_mode", Div},
    {"aten.true_divide.Tensor", Div},
    {"aten.floor_divide.default", FloorDivide},
    {"aten.floor_divide.Scalar", FloorDivide},
    {"aten.floor_divide.Tensor", FloorDivide},  // the form in place
    {"aten.remainder.Tensor", Remainder},
    {"aten.remainder.Scalar", Remainder},
    {"aten.fmod.Tensor", Fmod},
    {"aten.fmod.Scalar", Fmod},
    {"aten.pow.Tensor_Tensor", Pow},
    {"aten.pow.Tensor_Scalar", Pow},
    {"aten.pow.Scalar", Pow},
    {"aten.pow.Tensor", Pow},  // the form in place
    {"aten.maximum.default", ExtremeOf<true>},
    {"aten.max.other", ExtremeOf<true>},
    {"aten.fmax.default", ExtremeNumber<true>},
    {"aten.minimum.default", ExtremeOf<false>},
    {"aten.min.other", ExtremeOf<false>},
    {"aten.fmin.default", ExtremeNumber<false>},
    {"aten.atan2.default", Atan2},
    {"aten.addcmul.default", AddCMul},
    {"aten.addcdiv.default", AddCDiv},
    {"aten.lerp.Scalar", Lerp},
    {"aten.lerp.Tensor", Lerp},
};

}  // namespace

std::span<const AtenOp> BinaryRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
