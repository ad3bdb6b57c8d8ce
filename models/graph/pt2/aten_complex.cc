// Complex numbers: pairs along one axis more, at the end. Rows here are for
// nodes that take or give them; their names begin with "complex.".
#include <algorithm>
#include <cmath>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/sides.h"

namespace millrace::models::graph::pt2 {
namespace {

// [..., 2] of a complex operand; of a real one, [..., 1].
ValueId Parts(Lowering& n, const Operand& x) {
  return x.meta->is_complex ? x.id : n.emit().Unsqueeze(x.id, {x.rank()});
}

ValueId Part(Lowering& n, ValueId pairs, int rank, int64_t which) {
  return n.emit().Op("Gather", {pairs, n.emit().Integer(which, DType::kI64)},
                     {{"axis", int64_t{rank}}});
}

void Identity(Lowering& n) { n.Return(n.In("self")); }

void RealPart(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(Part(n, x.id, x.rank(), 0));
}
void ImaginaryPart(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(Part(n, x.id, x.rank(), 1));
}

void Absolute(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(n.emit().Op("ReduceL2", {x.id, n.emit().Ints({x.rank()})},
                       {{"keepdims", int64_t{0}}}));
}

ValueId Pair(Lowering& n, ValueId re, ValueId im, int rank) {
  Emitter& e = n.emit();
  return e.Concat({e.Unsqueeze(re, {rank}), e.Unsqueeze(im, {rank})}, rank);
}

void Complex(Lowering& n) {
  const Operand re = n.Arg("real");
  const Operand im = n.Arg("imag");
  if (re.rank() != im.rank()) return n.Fail("parts of different ranks");
  n.Return(Pair(n, re.id, im.id, re.rank()));
}

void Polar(Lowering& n) {
  const Operand size = n.Arg("abs");
  const Operand angle = n.Arg("angle");
  Emitter& e = n.emit();
  const int rank = std::max(size.rank(), angle.rank());
  n.Return(Pair(n, e.Op("Mul", {size.id, e.Op("Cos", {angle.id})}),
                e.Op("Mul", {size.id, e.Op("Sin", {angle.id})}), rank));
}

// Reals to complex numbers; the other way, what is imaginary goes.
void To(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const TensorMeta* out = n.OutMeta(0);
  if (out == nullptr || !out->is_complex) {
    return n.ReturnAs(x.dtype(), Part(n, x.id, x.rank(), 0));
  }
  const ValueId y = e.Cast(x.id, x.dtype(), out->dtype);
  if (x.meta->is_complex) return n.Return(y);
  n.Return(Pair(n, y, e.Op("Mul", {y, e.Number(0, out->dtype)}), x.rank()));
}

ValueId ConjugateOf(Lowering& n, const Operand& x) {
  Emitter& e = n.emit();
  const ValueId signs = e.Concat({e.Unsqueeze(e.Number(1, x.dtype()), {0}),
                                  e.Unsqueeze(e.Number(-1, x.dtype()), {0})},
                                 0);
  return e.Op("Mul", {x.id, signs});
}
void Conjugate(Lowering& n) { n.Return(ConjugateOf(n, n.Arg("self"))); }

ValueId Product(Lowering& n, const Operand& x, const Operand& y) {
  Emitter& e = n.emit();
  if (!x.meta->is_complex || !y.meta->is_complex) {
    return e.Op("Mul", {Parts(n, x), Parts(n, y)});
  }
  // (a + bi)(c + di) = (a + bi)c + (-b + ai)d
  const auto wide = [&](int64_t which) {
    return e.Unsqueeze(Part(n, y.id, y.rank(), which), {y.rank()});
  };
  const ValueId turned = Pair(n, e.Op("Neg", {Part(n, x.id, x.rank(), 1)}),
                              Part(n, x.id, x.rank(), 0), x.rank());
  return e.Op("Add",
              {e.Op("Mul", {x.id, wide(0)}), e.Op("Mul", {turned, wide(1)})});
}

void Multiply(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  if (SideOf(n, "other").tensor.meta == nullptr) {  // a real number
    return n.Return(e.Op("Mul", {x.id, e.Value(n.Number("other"), x.dtype())}));
  }
  const Operand y = n.Arg("other");
  n.Return(Product(n, x, y));
}

ValueId SquareOf(Lowering& n, const Operand& x) {
  Emitter& e = n.emit();
  return e.Op("ReduceSum", {e.Op("Mul", {x.id, x.id}), e.Ints({x.rank()})},
              {{"keepdims", int64_t{1}}});
}

// x / y = x · ȳ / |y|²
void Divide(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  if (SideOf(n, "other").tensor.meta == nullptr) {
    return n.Return(e.Op("Div", {x.id, e.Value(n.Number("other"), x.dtype())}));
  }
  const Operand y = n.Arg("other");
  if (!y.meta->is_complex) {
    return n.Return(e.Op("Div", {x.id, Parts(n, y)}));
  }
  n.Return(e.Op("Div",
                {Product(n, x, {ConjugateOf(n, y), y.meta}), SquareOf(n, y)}));
}

// a·b of matrices: four products of their parts.
void MatMul(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand y = n.Arg(n.Has("mat2") ? "mat2" : "other");
  if (!x.meta->is_complex || !y.meta->is_complex) {
    return n.Fail("a product of complex and real matrices");
  }
  Emitter& e = n.emit();
  const auto product = [&](int64_t a, int64_t b) {
    return e.Op("MatMul",
                {Part(n, x.id, x.rank(), a), Part(n, y.id, y.rank(), b)});
  };
  const int rank = std::max(x.rank(), y.rank());
  n.Return(Pair(n, e.Op("Sub", {product(0, 0), product(1, 1)}),
                e.Op("Add", {product(0, 1), product(1, 0)}), rank));
}

// Of two operands: four of their parts.
void Einsum(Lowering& n) {
  const std::vector<Operand> operands = n.Args("tensors");
  const TensorMeta* out = n.OutMeta(0);
  if (operands.size() != 2 || out == nullptr || !operands[0].meta->is_complex ||
      !operands[1].meta->is_complex) {
    return n.Fail("a sum over other than two complex operands");
  }
  Emitter& e = n.emit();
  const Attrs equation = {{"equation", std::string(n.Text("equation", ""))}};
  const auto product = [&](int64_t a, int64_t b) {
    return e.Op("Einsum",
                {Part(n, operands[0].id, operands[0].rank(), a),
                 Part(n, operands[1].id, operands[1].rank(), b)},
                equation);
  };
  n.Return(Pair(n, e.Op("Sub", {product(0, 0), product(1, 1)}),
                e.Op("Add", {product(0, 1), product(1, 0)}), out->rank()));
}

// e^a · (cos b + i sin b)
void Exp(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId size = e.Op("Exp", {Part(n, x.id, x.rank(), 0)});
  const ValueId angle = Part(n, x.id, x.rank(), 1);
  n.Return(Pair(n, e.Op("Mul", {size, e.Op("Cos", {angle})}),
                e.Op("Mul", {size, e.Op("Sin", {angle})}), x.rank()));
}

void Angle(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(AngleOf(n.emit(), x.dtype(), Part(n, x.id, x.rank(), 1),
                   Part(n, x.id, x.rank(), 0)));
}

void Square(Lowering& n) {
  const Operand x = n.Arg("self");
  if (n.Has("exponent") && n.Real("exponent", 0) != 2) {
    return n.Fail("a power other than 2");
  }
  n.Return(Product(n, x, x));
}

// A real value in every place.
void Fill(Lowering& n, const Num& value, std::vector<Num> sizes) {
  Emitter& e = n.emit();
  const TensorMeta* out = n.OutMeta(0);
  const DType type = out != nullptr ? out->dtype : DType::kF32;
  const ValueId pair = e.Concat({e.Unsqueeze(e.Value(value, type), {0}),
                                 e.Unsqueeze(e.Number(0, type), {0})},
                                0);
  sizes.push_back(Num::Of(2));
  n.Return(e.Expand(pair, e.List(sizes)));
}
void Full(Lowering& n) { Fill(n, n.Number("fill_value"), n.Numbers("size")); }
void Zeros(Lowering& n) { Fill(n, Num::Of(0), n.Numbers("size")); }
void ScalarTensor(Lowering& n) { Fill(n, n.Number("s"), {}); }

void Expand(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<Num> sizes = n.Numbers("size");
  const int added = static_cast<int>(sizes.size()) - x.rank();
  Emitter& e = n.emit();
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    auto& size = sizes[static_cast<size_t>(i)];
    if (size.Is(-1) && i >= added) size = n.Size(x, i - added);
  }
  sizes.push_back(Num::Of(2));
  n.Return(e.Expand(x.id, e.List(sizes)));
}

// The mask chooses pairs.
void Where(Lowering& n) {
  const Operand mask = n.Arg("condition");
  const Operand a = n.Arg("self");
  const Operand b = n.Arg("other");
  n.Return(n.emit().Op(
      "Where", {n.emit().Unsqueeze(mask.id, {mask.rank()}), a.id, b.id}));
}
void MaskedFill(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand mask = n.Arg("mask");
  Emitter& e = n.emit();
  const ValueId pair =
      e.Concat({e.Unsqueeze(e.Value(n.Number("value"), x.dtype()), {0}),
                e.Unsqueeze(e.Number(0, x.dtype()), {0})},
               0);
  n.Return(e.Op("Where", {e.Unsqueeze(mask.id, {mask.rank()}), pair, x.id}));
}
void Copy(Lowering& n) {
  const Operand source = n.Arg("src");
  Emitter& e = n.emit();
  if (!source.meta->is_complex) return n.Fail("reals into complex numbers");
  n.Return(e.Expand(source.id, e.Shape(n.In("self"))));
}

void Sum(Lowering& n, const char* op) {
  const Operand x = n.Arg("self");
  const Operand y = n.Arg("other");
  if (!x.meta->is_complex || !y.meta->is_complex) {
    return n.Fail("a sum of complex and real numbers");
  }
  n.Return(n.emit().Op(op, {x.id, y.id}));
}
void Add(Lowering& n) { Sum(n, "Add"); }
void Subtract(Lowering& n) { Sum(n, "Sub"); }

// ---- views: the axis of the parts stays the last ----
void Permute(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<int64_t> order;
  for (const int64_t dim : n.Ints("dims")) {
    order.push_back(dim < 0 ? dim + x.rank() : dim);
  }
  order.push_back(x.rank());
  n.Return(n.emit().Transpose(x.id, order));
}

void Transpose(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis <= x.rank(); ++axis) order.push_back(axis);
  std::swap(order[static_cast<size_t>(n.Axis("dim0", 0, x.rank()))],
            order[static_cast<size_t>(n.Axis("dim1", 1, x.rank()))]);
  n.Return(n.emit().Transpose(x.id, order));
}

void SwapLast(Lowering& n) {
  const Operand x = n.Arg("self");
  if (x.rank() < 2) return n.Fail("matrices are needed");
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis <= x.rank(); ++axis) order.push_back(axis);
  std::swap(order[static_cast<size_t>(x.rank()) - 2],
            order[static_cast<size_t>(x.rank()) - 1]);
  n.Return(n.emit().Transpose(x.id, order));
}

void Reshape(Lowering& n) {
  std::vector<Num> sizes = n.Numbers(n.Has("shape") ? "shape" : "size");
  sizes.push_back(Num::Of(2));
  n.Return(n.emit().Reshape(n.In("self"), sizes));
}

void Unsqueeze(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(n.emit().Unsqueeze(x.id, {n.Axis("dim", 0, x.rank() + 1)}));
}

constexpr AtenOp kRows[] = {
    {"complex.aten.view_as_real.default", Identity},
    {"complex.aten.view_as_complex.default", Identity},
    {"complex.aten.alias.default", Identity},
    {"complex.aten.clone.default", Identity},
    {"complex.aten.resolve_conj.default", Identity},
    {"complex.aten.permute.default", Permute},
    {"complex.aten.transpose.int", Transpose},
    {"complex.aten.reshape.default", Reshape},
    {"complex.aten.view.default", Reshape},
    {"complex.aten._unsafe_view.default", Reshape},
    {"complex.aten.unsqueeze.default", Unsqueeze},
    {"complex.aten.real.default", RealPart},
    {"complex.aten.imag.default", ImaginaryPart},
    {"complex.aten.abs.default", Absolute},
    {"complex.aten.complex.default", Complex},
    {"complex.aten.polar.default", Polar},
    {"complex.aten._to_copy.default", To},
    {"complex.aten.to.dtype", To},
    {"complex.aten.to.dtype_layout", To},
    {"complex.aten.to.device", To},
    {"complex.aten._conj.default", Conjugate},
    {"complex.aten.conj.default", Conjugate},
    {"complex.aten.conj_physical.default", Conjugate},
    {"complex.aten.mul.Tensor", Multiply},
    {"complex.aten.mul.Scalar", Multiply},
    {"complex.aten.div.Tensor", Divide},
    {"complex.aten.div.Scalar", Divide},
    {"complex.aten.mm.default", MatMul},
    {"complex.aten.bmm.default", MatMul},
    {"complex.aten.matmul.default", MatMul},
    {"complex.aten.einsum.default", Einsum},
    {"complex.aten.mT.default", SwapLast},
    {"complex.aten.exp.default", Exp},
    {"complex.aten.angle.default", Angle},
    {"complex.aten.square.default", Square},
    {"complex.aten.pow.Tensor_Scalar", Square},
    {"complex.aten.full.default", Full},
    {"complex.aten.new_full.default", Full},
    {"complex.aten.zeros.default", Zeros},
    {"complex.aten.new_zeros.default", Zeros},
    {"complex.aten.empty.memory_format", Zeros},
    {"complex.aten.scalar_tensor.default", ScalarTensor},
    {"complex.aten.expand.default", Expand},
    {"complex.aten.where.self", Where},
    {"complex.aten.masked_fill.Scalar", MaskedFill},
    {"complex.aten.copy.default", Copy},
    {"complex.aten.add.Tensor", Add},
    {"complex.aten.sub.Tensor", Subtract},
};

}  // namespace

std::span<const AtenOp> ComplexRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
