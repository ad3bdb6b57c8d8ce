// Reductions, scans and orders along axes.
#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// `dim` is absent, a number or a list.
std::vector<int64_t> ReducedAxes(Lowering& n, const Operand& x) {
  return n.Axes("dim", x.rank());
}

ValueId Reduce(Lowering& n, std::string_view op, ValueId x,
               const std::vector<int64_t>& axes, bool keep) {
  return n.emit().Op(op, {x, n.emit().Ints(axes)},
                     {{"keepdims", int64_t{keep ? 1 : 0}},
                      {"noop_with_empty_axes", int64_t{1}}});
}

// Over `dim` of "self", in the type that comes out.
void ReduceInOutType(Lowering& n, std::string_view op) {
  const Operand x = n.Arg("self");
  const ValueId cast = n.emit().Cast(x.id, x.dtype(), n.OutType(0));
  n.Return(Reduce(n, op, cast, ReducedAxes(n, x), n.Flag("keepdim", false)));
}
void Sum(Lowering& n) { ReduceInOutType(n, "ReduceSum"); }
void Mean(Lowering& n) { ReduceInOutType(n, "ReduceMean"); }
void Prod(Lowering& n) { ReduceInOutType(n, "ReduceProd"); }
void Amax(Lowering& n) { ReduceInOutType(n, "ReduceMax"); }
void Amin(Lowering& n) { ReduceInOutType(n, "ReduceMin"); }
void LogSumExp(Lowering& n) { ReduceInOutType(n, "ReduceLogSumExp"); }

// As UINT8, of which every runtime takes the extremes.
void Quantifier(Lowering& n, std::string_view op) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId truth = e.Cast(x.id, x.dtype(), DType::kBool);
  const ValueId y = Reduce(n, op, e.Cast(truth, DType::kBool, DType::kU8),
                           ReducedAxes(n, x), n.Flag("keepdim", false));
  n.ReturnAs(DType::kU8, y);
}
void Any(Lowering& n) { Quantifier(n, "ReduceMax"); }
void All(Lowering& n) { Quantifier(n, "ReduceMin"); }

// Values and where they are, along one axis.
void Extreme(Lowering& n, std::string_view values, std::string_view places) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", 0, x.rank());
  const bool keep = n.Flag("keepdim", false);
  n.Return(0, Reduce(n, values, x.id, {axis}, keep));
  n.Return(1,
           n.emit().Op(places, {x.id},
                       {{"axis", axis}, {"keepdims", int64_t{keep ? 1 : 0}}}));
}
void MaxDim(Lowering& n) { Extreme(n, "ReduceMax", "ArgMax"); }
void MinDim(Lowering& n) { Extreme(n, "ReduceMin", "ArgMin"); }

void Place(Lowering& n, std::string_view op) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  if (n.Has("dim")) {
    const int64_t keep = n.Flag("keepdim", false) ? 1 : 0;
    return n.Return(
        e.Op(op, {x.id},
             {{"axis", n.Axis("dim", 0, x.rank())}, {"keepdims", keep}}));
  }
  const ValueId flat = e.Reshape(x.id, {Num::Of(-1)});
  n.Return(e.Op(op, {flat}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}}));
}
void ArgMax(Lowering& n) { Place(n, "ArgMax"); }
void ArgMin(Lowering& n) { Place(n, "ArgMin"); }

struct Moments {
  ValueId variance;
  ValueId mean;
};

Moments MomentsOf(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const std::vector<int64_t> axes = ReducedAxes(n, x);
  const bool keep = n.Flag("keepdim", false);
  double correction = n.Real("correction", 1);
  if (n.Has("unbiased")) correction = n.Flag("unbiased", true) ? 1 : 0;
  const ValueId mean = Reduce(n, "ReduceMean", x.id, axes, true);
  const ValueId away = e.Op("Sub", {x.id, mean});
  ValueId variance =
      Reduce(n, "ReduceMean", e.Op("Mul", {away, away}), axes, keep);
  if (correction != 0) {
    Num count = Num::Of(1);
    for (const int64_t axis : axes) count = e.Mul(count, n.Size(x, axis));
    const ValueId all = e.Value(count, x.dtype());
    const ValueId fewer = e.Op("Sub", {all, e.Number(correction, x.dtype())});
    variance = e.Op("Mul", {variance, e.Op("Div", {all, fewer})});
  }
  return {variance, keep ? mean : e.Squeeze(mean, axes)};
}

void Var(Lowering& n) { n.Return(MomentsOf(n).variance); }
void Std(Lowering& n) {
  n.Return(n.emit().Op("Sqrt", {MomentsOf(n).variance}));
}
void VarMean(Lowering& n) {
  const Moments moments = MomentsOf(n);
  n.Return(0, moments.variance);
  n.Return(1, moments.mean);
}
void StdMean(Lowering& n) {
  const Moments moments = MomentsOf(n);
  n.Return(0, n.emit().Op("Sqrt", {moments.variance}));
  n.Return(1, moments.mean);
}

void VectorNorm(Lowering& n) {
  const Operand x = n.Arg("self");
  const double order = n.Real(n.Has("ord") ? "ord" : "p", 2);
  const std::vector<int64_t> axes = ReducedAxes(n, x);
  const bool keep = n.Flag("keepdim", false);
  Emitter& e = n.emit();
  const DType type = n.OutType(0);
  const ValueId cast = e.Cast(x.id, x.dtype(), type);
  if (order == 2) return n.Return(Reduce(n, "ReduceL2", cast, axes, keep));
  if (order == 1) return n.Return(Reduce(n, "ReduceL1", cast, axes, keep));
  const ValueId size = e.Op("Abs", {cast});
  if (order > 1e300) return n.Return(Reduce(n, "ReduceMax", size, axes, keep));
  if (order < -1e300) {
    return n.Return(Reduce(n, "ReduceMin", size, axes, keep));
  }
  if (order == 0) return n.Fail("the norm of order 0");
  const ValueId power = e.Op("Pow", {size, e.Number(order, type)});
  n.Return(e.Op("Pow", {Reduce(n, "ReduceSum", power, axes, keep),
                        e.Number(1 / order, type)}));
}

// Of vectors; of matrices, the root of the sum of squares alone.
void Norm(Lowering& n) {
  const Operand x = n.Arg("self");
  if (n.Has("ord") && ReducedAxes(n, x).size() != 1) {
    return n.Fail("the norm of a matrix by its order");
  }
  VectorNorm(n);
}

void CumSum(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  n.Return(
      e.Op("CumSum", {e.Cast(x.id, x.dtype(), n.OutType(0)),
                      e.Integer(n.Axis("dim", 0, x.rank()), DType::kI64)}));
}

void TopK(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const auto both =
      e.Ops("TopK", {x.id, e.List({n.Number("k")})},
            {{"axis", n.Axis("dim", -1, x.rank())},
             {"largest", int64_t{n.Flag("largest", true) ? 1 : 0}},
             {"sorted", int64_t{n.Flag("sorted", true) ? 1 : 0}}},
            2);
  n.Return(0, both[0]);
  n.Return(1, both[1]);
}

std::vector<ValueId> Sorted(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const int64_t axis = n.Axis("dim", -1, x.rank());
  return e.Ops("TopK", {x.id, e.List({n.Size(x, axis)})},
               {{"axis", axis},
                {"largest", int64_t{n.Flag("descending", false) ? 1 : 0}},
                {"sorted", int64_t{1}}},
               2);
}
void Sort(Lowering& n) {
  const auto both = Sorted(n);
  n.Return(0, both[0]);
  n.Return(1, both[1]);
}
void ArgSort(Lowering& n) { n.Return(Sorted(n)[1]); }

constexpr AtenOp kRows[] = {
    {"aten.sum.default", Sum},
    {"aten.sum.dim_IntList", Sum},
    {"aten.mean.default", Mean},
    {"aten.mean.dim", Mean},
    {"aten.prod.default", Prod},
    {"aten.prod.dim_int", Prod},
    {"aten.amax.default", Amax},
    {"aten.max.default", Amax},
    {"aten.amin.default", Amin},
    {"aten.min.default", Amin},
    {"aten.max.dim", MaxDim},
    {"aten.min.dim", MinDim},
    {"aten.argmax.default", ArgMax},
    {"aten.argmin.default", ArgMin},
    {"aten.any.default", Any},
    {"aten.any.dim", Any},
    {"aten.any.dims", Any},
    {"aten.all.default", All},
    {"aten._is_all_true.default", All},
    {"aten._is_any_true.default", Any},
    {"aten.all.dim", All},
    {"aten.all.dims", All},
    {"aten.logsumexp.default", LogSumExp},
    {"aten.var.default", Var},
    {"aten.var.dim", Var},
    {"aten.var.correction", Var},
    {"aten.std.default", Std},
    {"aten.std.dim", Std},
    {"aten.std.correction", Std},
    {"aten.var_mean.correction", VarMean},
    {"aten.var_mean.default", VarMean},
    {"aten.var_mean.dim", VarMean},
    {"aten.std_mean.default", StdMean},
    {"aten.std_mean.dim", StdMean},
    {"aten.std_mean.correction", StdMean},
    {"aten.linalg_vector_norm.default", VectorNorm},
    {"aten.norm.ScalarOpt_dim", VectorNorm},
    {"aten.norm.Scalar", VectorNorm},
    {"aten.norm.ScalarOpt_dim_dtype", VectorNorm},
    {"aten.frobenius_norm.dim", VectorNorm},
    {"aten.linalg_norm.default", Norm},
    {"aten.cumsum.default", CumSum},
    {"aten.topk.default", TopK},
    {"aten.sort.default", Sort},
    {"aten.sort.stable", Sort},
    {"aten.argsort.default", ArgSort},
    {"aten.argsort.stable", ArgSort},
};

}  // namespace

std::span<const AtenOp> ReduceRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
