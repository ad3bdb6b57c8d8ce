// Numbers that the graph computes with: sizes, arithmetic on them, assertions
// about them (skipped: operators check what they need themselves).
#include <cmath>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/json_fields.h"

namespace millrace::models::graph::pt2 {
namespace {

void SymSize(Lowering& n) {
  const Operand x = n.Arg("self");
  n.ReturnNumber(n.Size(x, n.Axis("dim", 0, x.rank())));
}

void SymNumel(Lowering& n) {
  const Operand x = n.Arg("self");
  Num count = Num::Of(1);
  for (const Num& size : n.Sizes(x)) count = n.emit().Mul(count, size);
  n.ReturnNumber(count);
}

// Values of ours start at their first byte; programs ask only to assert that an
// offset is none below zero.
void SymStorageOffset(Lowering& n) { n.ReturnNumber(Num::Of(0)); }

void Item(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const DType type = x.dtype() == DType::kBool ? DType::kBool
                     : IsFloat(x.dtype())      ? DType::kF64
                                               : DType::kI64;
  n.ReturnNumber(
      {.dtype = type, .id = e.Reshape(e.Cast(x.id, x.dtype(), type), {})});
}

bool BothInts(const Num& a, const Num& b) {
  return a.dtype != DType::kF64 && b.dtype != DType::kF64;
}

// An operator of ONNX on reals or integers.
Num Compute(Emitter& e, std::string_view op, const Num& a, const Num& b,
            std::optional<DType> result = std::nullopt) {
  const DType type = BothInts(a, b) ? DType::kI64 : DType::kF64;
  return {.dtype = result.value_or(type),
          .id = e.Op(op, {e.Value(a, type), e.Value(b, type)})};
}

void Add(Lowering& n) {
  const Num a = n.Number("a");
  const Num b = n.Number("b");
  Emitter& e = n.emit();
  n.ReturnNumber(BothInts(a, b) ? e.Add(a, b) : Compute(e, "Add", a, b));
}
void Sub(Lowering& n) {
  const Num a = n.Number("a");
  const Num b = n.Number("b");
  Emitter& e = n.emit();
  n.ReturnNumber(BothInts(a, b) ? e.Sub(a, b) : Compute(e, "Sub", a, b));
}
void Mul(Lowering& n) {
  const Num a = n.Number("a");
  const Num b = n.Number("b");
  Emitter& e = n.emit();
  n.ReturnNumber(BothInts(a, b) ? e.Mul(a, b) : Compute(e, "Mul", a, b));
}
void AddAll(Lowering& n) {
  Num sum = Num::Of(0);
  for (const Num& number : n.Numbers("args")) {
    if (number.dtype == DType::kF64) return n.Fail("a sum of reals");
    sum = n.emit().Add(sum, number);
  }
  n.ReturnNumber(sum);
}
void FloorDiv(Lowering& n) {
  const Num a = n.Number("a");
  const Num b = n.Number("b");
  Emitter& e = n.emit();
  if (BothInts(a, b)) return n.ReturnNumber(e.FloorDiv(a, b));
  const Num ratio = Compute(e, "Div", a, b);
  n.ReturnNumber({.dtype = DType::kF64, .id = e.Op("Floor", {ratio.id})});
}
void TrueDiv(Lowering& n) {
  Emitter& e = n.emit();
  n.ReturnNumber({.dtype = DType::kF64,
                  .id = e.Op("Div", {e.Value(n.Number("a"), DType::kF64),
                                     e.Value(n.Number("b"), DType::kF64)})});
}
void Mod(Lowering& n) {
  const Num a = n.Number("a");
  const Num b = n.Number("b");
  if (!BothInts(a, b)) return n.Fail("a rest of reals");
  n.ReturnNumber(Compute(n.emit(), "Mod", a, b));
}
void Pow(Lowering& n) {
  n.ReturnNumber(Compute(n.emit(), "Pow", n.Number("a"), n.Number("b")));
}
void Max(Lowering& n) {
  n.ReturnNumber(Compute(n.emit(), "Max", n.Number("a"), n.Number("b")));
}
void Min(Lowering& n) {
  n.ReturnNumber(Compute(n.emit(), "Min", n.Number("a"), n.Number("b")));
}
void Neg(Lowering& n) {
  n.ReturnNumber(n.emit().Sub(Num::Of(0), n.Number("a")));
}

void Compare(Lowering& n, std::string_view op) {
  n.ReturnNumber(
      Compute(n.emit(), op, n.Number("a"), n.Number("b"), DType::kBool));
}
void Eq(Lowering& n) { Compare(n, "Equal"); }
void Lt(Lowering& n) { Compare(n, "Less"); }
void Le(Lowering& n) { Compare(n, "LessOrEqual"); }
void Gt(Lowering& n) { Compare(n, "Greater"); }
void Ge(Lowering& n) { Compare(n, "GreaterOrEqual"); }
void Ne(Lowering& n) {
  const Num equal =
      Compute(n.emit(), "Equal", n.Number("a"), n.Number("b"), DType::kBool);
  n.ReturnNumber({.dtype = DType::kBool, .id = n.emit().Op("Not", {equal.id})});
}
void Logic(Lowering& n, std::string_view op) {
  Emitter& e = n.emit();
  n.ReturnNumber({.dtype = DType::kBool,
                  .id = e.Op(op, {e.Value(n.Number("a"), DType::kBool),
                                  e.Value(n.Number("b"), DType::kBool)})});
}
void And(Lowering& n) { Logic(n, "And"); }
void Or(Lowering& n) { Logic(n, "Or"); }
void Not(Lowering& n) {
  Emitter& e = n.emit();
  n.ReturnNumber({.dtype = DType::kBool,
                  .id = e.Op("Not", {e.Value(n.Number("a"), DType::kBool)})});
}

// Reals to integers.
void Rounded(Lowering& n, const char* op) {
  Emitter& e = n.emit();
  ValueId x = e.Value(n.Number("a"), DType::kF64);
  if (op != nullptr) x = e.Op(op, {x});
  n.ReturnNumber({.id = e.Cast(x, DType::kF64, DType::kI64)});
}
void Trunc(Lowering& n) { Rounded(n, nullptr); }
void Ceil(Lowering& n) { Rounded(n, "Ceil"); }
void Floor(Lowering& n) { Rounded(n, "Floor"); }
void Round(Lowering& n) { Rounded(n, "Round"); }
void Sqrt(Lowering& n) {
  Emitter& e = n.emit();
  n.ReturnNumber({.dtype = DType::kF64,
                  .id = e.Op("Sqrt", {e.Value(n.Number("a"), DType::kF64)})});
}
void ToFloat(Lowering& n) {
  n.ReturnNumber(
      {.dtype = DType::kF64, .id = n.emit().Value(n.Number("a"), DType::kF64)});
}
void Ite(Lowering& n) {
  Emitter& e = n.emit();
  const Num then = n.Number(n.Has("t") ? "t" : "b");
  const Num other = n.Number(n.Has("f") ? "f" : "c");
  const DType type = BothInts(then, other) ? DType::kI64 : DType::kF64;
  n.ReturnNumber(
      {.dtype = type,
       .id = e.Op("Where",
                  {e.Value(n.Number(n.Has("b") && n.Has("t") ? "b" : "a"),
                           DType::kBool),
                   e.Value(then, type), e.Value(other, type)})});
}

void Skip(Lowering&) {}

// A second result beside the checked tensor: the tensor itself.
void SkipAndPass(Lowering& n) {
  if (n.num_outputs() > 0) n.Return(n.In("self"));
}

// (token, operator, its operands) → (token, its results). A server prints
// nothing, and what has no effect needs no order.
void WithEffects(Lowering& n) {
  const auto& inputs = n.spec().inputs;
  const std::string_view what =
      inputs.size() > 1 ? std::string_view(inputs[1].second.text) : "";
  if (what != "torch.ops.aten._print.default" &&
      what != "torch.ops.higher_order.print" && what != "aten._print.default" &&
      what != "higher_order.print") {
    return n.Fail("it has the effect of '" + Shown(what) +
                  "'; of effects only printing is left out");
  }
  if (n.num_outputs() > 0) {
    n.Return(n.emit().Constant(Tensor::Make(DType::kF32, {0})));
  }
}

constexpr AtenOp kRows[] = {
    {"aten.sym_size.int", SymSize},
    {"aten.sym_numel.default", SymNumel},
    {"aten.sym_storage_offset.default", SymStorageOffset},
    {"aten.item.default", Item},
    {"aten._local_scalar_dense.default", Item},
    {"_operator.add", Add},
    {"_operator.sub", Sub},
    {"_operator.mul", Mul},
    {"_operator.floordiv", FloorDiv},
    {"_operator.truediv", TrueDiv},
    {"_operator.mod", Mod},
    {"_operator.pow", Pow},
    {"_operator.neg", Neg},
    {"_operator.eq", Eq},
    {"_operator.ne", Ne},
    {"_operator.lt", Lt},
    {"_operator.le", Le},
    {"_operator.gt", Gt},
    {"_operator.ge", Ge},
    {"_operator.and_", And},
    {"_operator.or_", Or},
    {"_operator.not_", Not},
    {"math.trunc", Trunc},
    {"math.ceil", Ceil},
    {"math.floor", Floor},
    {"math.sqrt", Sqrt},
    {"round", Round},
    {"torch.sym_int", Trunc},
    {"torch.sym_float", ToFloat},
    {"torch.sym_max", Max},
    {"torch.sym_min", Min},
    {"torch.sym_not", Not},
    {"torch.sym_sum", AddAll},
    {"torch.sym_ite", Ite},
    {"torch._sym_sqrt", Sqrt},
    {"aten._assert_tensor_metadata.default", Skip},
    {"aten._assert_scalar.default", Skip},
    {"aten._assert_async.msg", Skip},
    {"aten._functional_assert_async.msg", SkipAndPass},
    {"aten.sym_constrain_range.default", Skip},
    {"aten.sym_constrain_range_for_size.default", Skip},
    {"torch._check", Skip},
    {"aten._print.default", Skip},
    {"higher_order.print", Skip},
    {"higher_order.with_effects", WithEffects},
};

}  // namespace

std::span<const AtenOp> SymbolRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
