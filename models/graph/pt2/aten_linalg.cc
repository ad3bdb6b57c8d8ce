// Matrices as wholes: inverses, determinants, factors, and products that
// PyTorch has names of their own for.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

Attrs Dropped() { return {{"keepdims", int64_t{0}}}; }

ValueId Solve(Lowering& n, const Operand& a, ValueId b) {
  return n.emit().Op("Solve", {a.id, b});
}

// The identity of the matrices' size.
ValueId Identity(Lowering& n, const Operand& a) {
  Emitter& e = n.emit();
  const ValueId places =
      e.Op("Range", {e.Integer(0, DType::kI64),
                     e.Value(n.Size(a, a.rank() - 1), DType::kI64),
                     e.Integer(1, DType::kI64)});
  return e.Cast(e.Op("Equal", {e.Unsqueeze(places, {1}), places}), DType::kBool,
                a.dtype());
}

// The forms with a code of errors promise that it is 0.
void NoErrors(Lowering& n, size_t result, const Operand& a) {
  if (n.num_outputs() <= result || a.rank() < 2) return;
  Emitter& e = n.emit();
  std::vector<Num> batch;
  for (int i = 0; i < a.rank() - 2; ++i) batch.push_back(n.Size(a, i));
  n.Return(result, e.Expand(e.Integer(0, n.OutType(result)), e.List(batch)));
}

Operand Matrices(Lowering& n) {
  for (const char* name : {"A", "self", "input"}) {
    if (!n.Has(name)) continue;
    const Operand a = n.Arg(name);
    if (a && a.rank() < 2) n.Fail("matrices are needed");
    return a;
  }
  n.Fail("matrices are needed");
  return {};
}

void Inverse(Lowering& n) {
  const Operand a = Matrices(n);
  if (!a || a.rank() < 2) return;
  n.Return(0, Solve(n, a, Identity(n, a)));
  NoErrors(n, 1, a);
}

// Whether a right side is a vector for each matrix, or one for all: of one
// axis, or of the matrices' sizes without the last.
bool AreVectors(const Operand& a, const Operand& b) {
  if (b.rank() == 1) return true;
  if (b.rank() != a.rank() - 1) return false;
  return std::equal(b.meta->sizes.begin(), b.meta->sizes.end(),
                    a.meta->sizes.begin(), [](const Dim& x, const Dim& y) {
                      return x.fixed == y.fixed && x.hint == y.hint &&
                             x.symbol == y.symbol;
                    });
}

void LinalgSolve(Lowering& n) {
  const Operand a = Matrices(n);
  const Operand b = n.Arg("B");
  if (!a || !b || !n.Flag("left", true)) return n.Fail("x·a = b");
  Emitter& e = n.emit();
  const bool vectors = AreVectors(a, b);
  if (!vectors && b.rank() != a.rank() && b.rank() != 2) {
    return n.Fail("a right side of rank " + std::to_string(b.rank()));
  }
  const ValueId x = Solve(n, a, vectors ? e.Unsqueeze(b.id, {b.rank()}) : b.id);
  n.Return(0, vectors ? e.Squeeze(x, {a.rank() - 1}) : x);
}

void SolveTriangular(Lowering& n) {
  const Operand a = n.Arg("self");
  const Operand b = n.Arg("B");
  if (!n.Flag("left", true) || a.rank() < 2 ||
      (b.rank() != a.rank() && b.rank() != 2)) {
    return n.Fail("x·a = b, or a right side of another rank");
  }
  const bool upper = n.Flag("upper", false);
  n.Return(
      n.emit().Op("Solve", {a.id, b.id},
                  {{"triangle", std::string(upper ? "upper" : "lower")},
                   {"unit", int64_t{n.Flag("unitriangular", false) ? 1 : 0}}}));
}

void Cholesky(Lowering& n) {
  const Operand a = n.Arg("self");
  const bool upper = n.Flag("upper", false);
  n.Return(
      0, n.emit().Op("Cholesky", {a.id}, {{"upper", int64_t{upper ? 1 : 0}}}));
  NoErrors(n, 1, a);
}

void Det(Lowering& n) { n.Return(0, n.emit().Op("Det", {Matrices(n).id})); }
// NaN of a negative determinant.
void LogDet(Lowering& n) {
  const Operand a = Matrices(n);
  if (!a) return;
  Emitter& e = n.emit();
  const auto parts = e.Ops("SLogDet", {a.id}, {}, 2);
  const ValueId none =
      e.Number(std::numeric_limits<double>::quiet_NaN(), a.dtype());
  n.Return(e.Op("Where", {e.Op("Less", {parts[0], e.Number(0, a.dtype())}),
                          none, parts[1]}));
}
void SLogDet(Lowering& n) {
  const auto parts = n.emit().Ops("SLogDet", {Matrices(n).id}, {}, 2);
  n.Return(0, parts[0]);
  n.Return(1, parts[1]);
}

void MatrixPower(Lowering& n) {
  const Operand a = n.Arg("self");
  const int64_t power = n.Int("n", 1);
  if (power < -64 || power > 64) return n.Fail("a power of this size");
  Emitter& e = n.emit();
  ValueId base = power < 0 ? Solve(n, a, Identity(n, a)) : a.id;
  if (power == 0) return n.Return(e.Expand(Identity(n, a), e.Shape(a.id)));
  ValueId y = kNoValue;
  for (int64_t left = power < 0 ? -power : power; left != 0; left /= 2) {
    if (left % 2 != 0) y = y == kNoValue ? base : e.Op("MatMul", {y, base});
    if (left > 1) base = e.Op("MatMul", {base, base});
  }
  n.Return(y);
}

// Frobenius' alone, the others need singular values or sums by rows.
void MatrixNorm(Lowering& n) {
  const Operand a = n.Arg("self");
  if (n.Text("ord", "fro") != "fro" || a.rank() < 2) {
    return n.Fail("a norm of matrices other than 'fro'");
  }
  Emitter& e = n.emit();
  std::vector<int64_t> axes = {a.rank() - 2, a.rank() - 1};
  if (n.Has("dim")) axes = n.Axes("dim", a.rank());
  n.Return(e.Op("ReduceL2", {a.id, e.Ints(axes)},
                {{"keepdims", int64_t{n.Flag("keepdim", false)}}}));
}

void MultiDot(Lowering& n) {
  ValueId y = kNoValue;
  for (const Operand& x : n.Args("tensors")) {
    y = y == kNoValue ? x.id : n.emit().Op("MatMul", {y, x.id});
  }
  n.Return(y);
}

// [..., n] and [..., m] at some offset; a matrix gives its diagonal.
void Diag(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t offset = n.Int("diagonal", 0);
  Emitter& e = n.emit();
  if (x.rank() != 1 || offset != 0) {
    return n.Fail("a diagonal off the middle, or of a matrix");
  }
  n.Return(e.Op("Where", {e.Cast(Identity(n, x), x.dtype(), DType::kBool),
                          e.Unsqueeze(x.id, {1}), e.Number(0, x.dtype())}));
}

void Trace(Lowering& n) {
  const Operand x = n.Arg("self");
  if (x.rank() != 2) return n.Fail("a matrix is needed");
  Emitter& e = n.emit();
  n.Return(e.Op("Einsum", {x.id}, {{"equation", std::string("ii->")}}));
}

void VecDot(Lowering& n) {
  Emitter& e = n.emit();
  n.Return(e.Op("ReduceSum", {e.Op("Mul", {n.In("self"), n.In("other")})},
                Dropped()));
}

// a[..., k] · b[..., k] for all pairs of what stands before k.
void Inner(Lowering& n) {
  const Operand a = n.Arg("self");
  const Operand b = n.Arg("other");
  Emitter& e = n.emit();
  if (a.rank() == 0 || b.rank() == 0) {
    return n.Return(e.Op("Mul", {a.id, b.id}));
  }
  std::string left;
  std::string right;
  for (int i = 0; i < a.rank() - 1; ++i) left += static_cast<char>('a' + i);
  for (int i = 0; i < b.rank() - 1; ++i) right += static_cast<char>('n' + i);
  n.Return(e.Op("Einsum", {a.id, b.id},
                {{"equation", left + "Z," + right + "Z->" + left + right}}));
}

void TensorDot(Lowering& n) {
  const Operand a = n.Arg("self");
  const Operand b = n.Arg("other");
  const std::vector<int64_t> of_a = n.Ints("dims_self");
  const std::vector<int64_t> of_b = n.Ints("dims_other");
  if (of_a.size() != of_b.size() || a.rank() + b.rank() > 26) {
    return n.Fail("axes that do not pair");
  }
  std::string left;
  std::string right;
  for (int i = 0; i < a.rank(); ++i) left += static_cast<char>('a' + i);
  for (int i = 0; i < b.rank(); ++i) {
    right += static_cast<char>('a' + a.rank() + i);
  }
  std::string result = left + right;
  for (size_t i = 0; i < of_a.size(); ++i) {
    const int64_t at = of_a[i] < 0 ? of_a[i] + a.rank() : of_a[i];
    const int64_t to = of_b[i] < 0 ? of_b[i] + b.rank() : of_b[i];
    if (at < 0 || at >= a.rank() || to < 0 || to >= b.rank()) {
      return n.Fail("an axis out of range");
    }
    std::erase(result, left[static_cast<size_t>(at)]);
    std::erase(result, right[static_cast<size_t>(to)]);
    right[static_cast<size_t>(to)] = left[static_cast<size_t>(at)];
  }
  n.Return(n.emit().Op("Einsum", {a.id, b.id},
                       {{"equation", left + "," + right + "->" + result}}));
}

// beta·self + alpha·product
void Added(Lowering& n, ValueId product) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const auto times = [&](ValueId value, std::string_view name) {
    const double factor = n.Real(name, 1);
    if (factor == 1) return value;
    return e.Op("Mul", {value, e.Number(factor, x.dtype())});
  };
  const ValueId y = times(product, "alpha");
  if (n.Real("beta", 1) == 0) return n.Return(y);
  n.Return(e.Op("Add", {times(x.id, "beta"), y}));
}
void AddMv(Lowering& n) {
  Added(n, n.emit().Op("MatMul", {n.In("mat"), n.In("vec")}));
}
void AddR(Lowering& n) {
  Emitter& e = n.emit();
  Added(n, e.Op("Mul", {e.Unsqueeze(n.In("vec1"), {1}), n.In("vec2")}));
}
void AddBmm(Lowering& n) {
  Emitter& e = n.emit();
  Added(n, e.Op("ReduceSum",
                {e.Op("MatMul", {n.In("batch1"), n.In("batch2")}), e.Ints({0})},
                Dropped()));
}

// y[..., o] = x1[..., i] · weight[o, i, j] · x2[..., j] + bias
void Bilinear(Lowering& n) {
  Emitter& e = n.emit();
  ValueId y = e.Op("Einsum", {n.In("input1"), n.In("weight"), n.In("input2")},
                   {{"equation", std::string("...i,oij,...j->...o")}});
  if (n.Has("bias")) y = e.Op("Add", {y, n.In("bias")});
  n.Return(y);
}

// What a bilinear layer becomes: three factors, each without the axes that the
// file calls its expanded ones, and the sum over some.
void Trilinear(Lowering& n) {
  const std::vector<int64_t> sums = n.Ints("sumdim");
  std::string equation;
  std::vector<ValueId> factors;
  size_t axes = 0;
  for (const char* i : {"1", "2", "3"}) {
    const Operand x = n.Arg(std::string("i") + i);
    const std::vector<int64_t> absent = n.Ints(std::string("expand") + i);
    axes = static_cast<size_t>(x.rank()) + absent.size();
    if (axes > 26) return n.Fail("so many axes");
    if (!factors.empty()) equation += ",";
    factors.push_back(x.id);
    for (size_t axis = 0; axis < axes; ++axis) {
      if (std::count(absent.begin(), absent.end(),
                     static_cast<int64_t>(axis)) == 0) {
        equation += static_cast<char>('a' + axis);
      }
    }
  }
  equation += "->";
  for (size_t axis = 0; axis < axes; ++axis) {
    if (std::count(sums.begin(), sums.end(), static_cast<int64_t>(axis)) == 0) {
      equation += static_cast<char>('a' + axis);
    }
  }
  n.Return(n.emit().Op("Einsum", std::move(factors), {{"equation", equation}}));
}

// Each element of a times the whole of b.
void Kron(Lowering& n) {
  const Operand a = n.Arg("self");
  const Operand b = n.Arg("other");
  if (a.rank() != b.rank()) return n.Fail("operands of different ranks");
  Emitter& e = n.emit();
  std::vector<int64_t> inner;
  std::vector<int64_t> outer;
  std::vector<Num> sizes;
  for (int i = 0; i < a.rank(); ++i) {
    outer.push_back(2 * i + 1);
    inner.push_back(2 * i);
    sizes.push_back(e.Mul(n.Size(a, i), n.Size(b, i)));
  }
  n.Return(e.Reshape(
      e.Op("Mul", {e.Unsqueeze(a.id, outer), e.Unsqueeze(b.id, inner)}),
      sizes));
}

constexpr AtenOp kRows[] = {
    {"aten.linalg_inv.default", Inverse},
    {"aten.linalg_inv_ex.default", Inverse},
    {"aten.inverse.default", Inverse},
    {"aten.linalg_solve.default", LinalgSolve},
    {"aten.linalg_solve_ex.default", LinalgSolve},
    {"aten._linalg_solve_ex.default", LinalgSolve},
    {"aten.linalg_solve_triangular.default", SolveTriangular},
    {"aten.linalg_cholesky.default", Cholesky},
    {"aten.linalg_cholesky_ex.default", Cholesky},
    {"aten.cholesky.default", Cholesky},
    {"aten.linalg_det.default", Det},
    {"aten._linalg_det.default", Det},
    {"aten.det.default", Det},
    {"aten.logdet.default", LogDet},
    {"aten.slogdet.default", SLogDet},
    {"aten.linalg_slogdet.default", SLogDet},
    {"aten._linalg_slogdet.default", SLogDet},
    {"aten.linalg_matrix_power.default", MatrixPower},
    {"aten.matrix_power.default", MatrixPower},
    {"aten.linalg_matrix_norm.str_ord", MatrixNorm},
    {"aten.linalg_multi_dot.default", MultiDot},
    {"aten.diag.default", Diag},
    {"aten.trace.default", Trace},
    {"aten.vdot.default", VecDot},
    {"aten.inner.default", Inner},
    {"aten.tensordot.default", TensorDot},
    {"aten.addmv.default", AddMv},
    {"aten.addr.default", AddR},
    {"aten.addbmm.default", AddBmm},
    {"aten.bilinear.default", Bilinear},
    {"aten._trilinear.default", Trilinear},
    {"aten.kron.default", Kron},
};

}  // namespace

std::span<const AtenOp> LinalgRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
