// Tensors out of numbers.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// `value` in every place of the sizes, of the type that the file promises.
void Fill(Lowering& n, const Num& value, ValueId sizes) {
  Emitter& e = n.emit();
  n.Return(e.Expand(e.Value(value, n.OutType(0)), sizes));
}

ValueId SizeList(Lowering& n) { return n.emit().List(n.Numbers("size")); }
ValueId SizesOfSelf(Lowering& n) { return n.emit().Shape(n.In("self")); }

void Full(Lowering& n) { Fill(n, n.Number("fill_value"), SizeList(n)); }
void Zeros(Lowering& n) { Fill(n, Num::Of(0), SizeList(n)); }
void Ones(Lowering& n) { Fill(n, Num::Of(1), SizeList(n)); }
void FullLike(Lowering& n) { Fill(n, n.Number("fill_value"), SizesOfSelf(n)); }
void ZerosLike(Lowering& n) { Fill(n, Num::Of(0), SizesOfSelf(n)); }
void OnesLike(Lowering& n) { Fill(n, Num::Of(1), SizesOfSelf(n)); }
void FillScalar(Lowering& n) { Fill(n, n.Number("value"), SizesOfSelf(n)); }

void FillTensor(Lowering& n) {
  const Operand value = n.Arg("value");
  Emitter& e = n.emit();
  n.ReturnAs(value.dtype(), e.Expand(value.id, SizesOfSelf(n)));
}

void Copy(Lowering& n) {
  const Operand source = n.Arg("src");
  Emitter& e = n.emit();
  n.ReturnAs(source.dtype(), e.Expand(source.id, SizesOfSelf(n)));
}

void ScalarTensor(Lowering& n) {
  n.Return(n.emit().Value(n.Number("s"), n.OutType(0)));
}

// PyTorch counts in FP64 or INT64, whatever narrower type the result has.
void Arange(Lowering& n) {
  const DType type = IsFloat(n.OutType(0)) ? DType::kF64 : DType::kI64;
  Emitter& e = n.emit();
  n.ReturnAs(type,
             e.Op("Range", {e.Value(n.Number("start", Num::Of(0)), type),
                            e.Value(n.Number("end"), type),
                            e.Value(n.Number("step", Num::Of(1)), type)}));
}

// Evenly from start to end, both included, each a number or a tensor of one.
template <bool kFromTensor, bool kToTensor>
ValueId Even(Lowering& n) {
  const int64_t steps = n.Int("steps", 1);
  Emitter& e = n.emit();
  if (steps < 1 || steps > (1 << 24)) {
    n.Fail("steps out of range");
    return kNoValue;
  }
  const auto tensor = [&](std::string_view name) {
    const Operand x = n.Arg(name);
    return x ? e.Cast(x.id, x.dtype(), DType::kF64) : kNoValue;
  };
  const auto number = [&](std::string_view name, double otherwise) {
    return e.Number(n.Real(name, otherwise), DType::kF64);
  };
  const ValueId start = kFromTensor ? tensor("start") : number("start", 0);
  const ValueId end = kToTensor ? tensor("end") : number("end", 1);
  if (start == kNoValue || end == kNoValue) return kNoValue;
  const auto parts = static_cast<double>(std::max<int64_t>(steps - 1, 1));
  const ValueId step =
      e.Op("Div", {e.Op("Sub", {end, start}), e.Number(parts, DType::kF64)});
  const ValueId count =
      e.Op("Range", {e.Integer(0, DType::kI64), e.Integer(steps, DType::kI64),
                     e.Integer(1, DType::kI64)});
  const ValueId scaled =
      e.Op("Mul", {e.Cast(count, DType::kI64, DType::kF64), step});
  return e.Op("Add", {scaled, start});
}
template <bool kFromTensor = false, bool kToTensor = false>
void Linspace(Lowering& n) {
  n.ReturnAs(DType::kF64, Even<kFromTensor, kToTensor>(n));
}
template <bool kFromTensor = false, bool kToTensor = false>
void Logspace(Lowering& n) {
  const ValueId base = n.emit().Number(n.Real("base", 10), DType::kF64);
  n.ReturnAs(DType::kF64,
             n.emit().Op("Pow", {base, Even<kFromTensor, kToTensor>(n)}));
}

// As Range, of which the end is part.
void RangeWithEnd(Lowering& n) {
  const double start = n.Real("start", 0);
  const double step = n.Real("step", 1);
  const double steps = (n.Real("end", 0) - start) / step;
  if (!(steps >= 0 && steps < (1 << 24))) return n.Fail("steps out of range");
  Emitter& e = n.emit();
  // Half a step more than the last.
  const double end = start + (std::floor(steps) + 0.5) * step;
  n.ReturnAs(DType::kF64, e.Op("Range", {e.Number(start, DType::kF64),
                                         e.Number(end, DType::kF64),
                                         e.Number(step, DType::kF64)}));
}

// Whether row - column is as asked, of a matrix of these sizes.
ValueId Diagonals(Lowering& n, const Num& rows, const Num& columns,
                  std::string_view compare, int64_t offset) {
  Emitter& e = n.emit();
  const auto count = [&](const Num& size) {
    return e.Op("Range", {e.Integer(0, DType::kI64), e.Value(size, DType::kI64),
                          e.Integer(1, DType::kI64)});
  };
  const ValueId row = e.Unsqueeze(count(rows), {1});
  const ValueId column = count(columns);
  return e.Op(compare,
              {e.Op("Add", {row, e.Integer(offset, DType::kI64)}), column});
}

void Eye(Lowering& n) {
  const Num rows = n.Number("n");
  const Num columns = n.Number("m", rows);
  n.ReturnAs(DType::kBool, Diagonals(n, rows, columns, "Equal", 0));
}

void Triangle(Lowering& n, bool upper) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const int64_t diagonal = n.Int("diagonal", 0);
  n.ReturnAs(x.dtype(), e.Op("Trilu", {x.id, e.Integer(diagonal, DType::kI64)},
                             {{"upper", int64_t{upper ? 1 : 0}}}));
}
void Tril(Lowering& n) { Triangle(n, false); }
void Triu(Lowering& n) { Triangle(n, true); }

void Random(Lowering& n) { n.Fail("it draws random numbers"); }
// Of a chance of 0 or 1 nothing is left to chance.
void Bernoulli(Lowering& n) {
  const double p = n.Real("p", 0.5);
  if (p == 0) return ZerosLike(n);
  p == 1 ? OnesLike(n) : Random(n);
}

constexpr AtenOp kRows[] = {
    {"aten.full.default", Full},
    {"aten.new_full.default", Full},
    {"aten.full_like.default", FullLike},
    {"aten.zeros.default", Zeros},
    {"aten.new_zeros.default", Zeros},
    {"aten.zeros_like.default", ZerosLike},
    {"aten.zero.default", ZerosLike},
    {"aten.ones.default", Ones},
    {"aten.new_ones.default", Ones},
    {"aten.ones_like.default", OnesLike},
    // What is in fresh memory is nothing to rely on: zeros will do.
    {"aten.empty.memory_format", Zeros},
    {"aten.new_empty.default", Zeros},
    {"aten.new_empty_strided.default", Zeros},
    {"aten.empty_strided.default", Zeros},
    {"aten.empty_like.default", ZerosLike},
    {"aten.empty_permuted.default", Zeros},
    {"aten.fill.Scalar", FillScalar},
    {"aten.fill.Tensor", FillTensor},
    {"aten.copy.default", Copy},
    {"aten.scalar_tensor.default", ScalarTensor},
    {"aten.arange.default", Arange},
    {"aten.arange.start", Arange},
    {"aten.arange.start_step", Arange},
    {"aten.linspace.default", Linspace<>},
    {"aten.linspace.Tensor_Scalar", Linspace<true, false>},
    {"aten.linspace.Scalar_Tensor", Linspace<false, true>},
    {"aten.linspace.Tensor_Tensor", Linspace<true, true>},
    {"aten.logspace.default", Logspace<>},
    {"aten.logspace.Tensor_Scalar", Logspace<true, false>},
    {"aten.logspace.Scalar_Tensor", Logspace<false, true>},
    {"aten.logspace.Tensor_Tensor", Logspace<true, true>},
    {"aten.range.default", RangeWithEnd},
    {"aten.range.step", RangeWithEnd},
    {"aten.eye.default", Eye},
    {"aten.eye.m", Eye},
    {"aten.tril.default", Tril},
    {"aten.triu.default", Triu},
    {"aten.randint.default", Random},
    {"aten.randint.low", Random},
    {"aten.randint_like.default", Random},
    {"aten.randint_like.low_dtype", Random},
    {"aten.randperm.default", Random},
    {"aten.normal.float_float", Random},
    {"aten.normal_functional.default", Random},
    {"aten.exponential.default", Random},
    {"aten.uniform.default", Random},
    {"aten.rand.default", Random},
    {"aten.randn.default", Random},
    {"aten.rand_like.default", Random},
    {"aten.randn_like.default", Random},
    {"aten.bernoulli.default", Random},
    {"aten.bernoulli.p", Bernoulli},
    {"aten.multinomial.default", Random},
};

}  // namespace

std::span<const AtenOp> CreateRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
