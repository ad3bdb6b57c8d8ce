// What few programs have, put together from what the graph has: stacks of
// blocks, distances of rows, integrals, the commonest value,
// functions of the gamma function.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/sides.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

struct Input {
  DType type;
  ValueId id;
  int rank;
};
Input Real(Lowering& n, const char* name = "self") {
  const Operand x = n.Arg(name);
  const DType type = IsFloat(x.dtype()) ? x.dtype() : DType::kF32;
  return {type, n.emit().Cast(x.id, x.dtype(), type), x.rank()};
}

// ---- functions of elements ----
void Lgamma(Lowering& n) { n.Return(n.emit().Op("Lgamma", {Real(n).id})); }
void Digamma(Lowering& n) { n.Return(n.emit().Op("Digamma", {Real(n).id})); }
void ErfInv(Lowering& n) { n.Return(n.emit().Op("ErfInv", {Real(n).id})); }

// The quantile of the normal distribution.
void Ndtri(Lowering& n) {
  const Input x = Real(n);
  Emitter& e = n.emit();
  const ValueId wide = e.Op(
      "Sub", {e.Op("Mul", {x.id, e.Number(2, x.type)}), e.Number(1, x.type)});
  n.Return(
      e.Op("Mul", {e.Op("ErfInv", {wide}), e.Number(std::sqrt(2.0), x.type)}));
}

// log Γ_p(x) = p(p - 1)/4 · log π + Σ log Γ(x - j/2)
void MultivariateLgamma(Lowering& n) {
  const Input x = Real(n);
  const int64_t p = n.Int("p", 1);
  if (p < 1 || p > 1024) return n.Fail("a gamma function of this dimension");
  Emitter& e = n.emit();
  ValueId sum = e.Number(
      static_cast<double>(p * (p - 1)) / 4 * std::log(3.141592653589793),
      x.type);
  for (int64_t j = 0; j < p; ++j) {
    const ValueId at =
        e.Op("Sub", {x.id, e.Number(static_cast<double>(j) / 2, x.type)});
    sum = e.Op("Add", {e.Op("Lgamma", {at}), sum});
  }
  n.Return(sum);
}

// log₂(2ᵃ + 2ᵇ), from the greater one.
void LogAddExp2(Lowering& n) {
  const Pair pair = Operands(n, true);
  Emitter& e = n.emit();
  const ValueId most = e.Op("Max", {pair.a, pair.b});
  const ValueId two = e.Number(2, pair.type);
  const ValueId sum =
      e.Op("Add", {e.Op("Pow", {two, e.Op("Sub", {pair.a, most})}),
                   e.Op("Pow", {two, e.Op("Sub", {pair.b, most})})});
  const ValueId log =
      e.Op("Mul", {e.Op("Log", {sum}), e.Number(1 / std::log(2.0), pair.type)});
  // Of two infinities there is no difference.
  n.Return(
      e.Op("Where", {e.Op("IsInf", {most}), most, e.Op("Add", {most, log})}));
}

// ---- shapes ----
ValueId AtLeast(Emitter& e, const Operand& x, int rank) {
  if (x.rank() >= rank) return x.id;
  if (x.rank() == 0) {
    return e.Reshape(x.id,
                     std::vector<Num>(static_cast<size_t>(rank), Num::Of(1)));
  }
  if (rank == 2) return e.Unsqueeze(x.id, {0});
  return x.rank() == 1 ? e.Unsqueeze(x.id, {0, 2}) : e.Unsqueeze(x.id, {2});
}
template <int kRank>
void AtLeastOne(Lowering& n) {
  n.Return(AtLeast(n.emit(), n.Arg("self"), kRank));
}
template <int kRank>
void AtLeastAll(Lowering& n) {
  const std::vector<Operand> all = n.Args("tensors");
  if (all.size() != n.num_outputs()) return n.Fail("a list of another length");
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) return n.Fail("a tensor that is left out");
    n.Return(i, AtLeast(n.emit(), all[i], kRank));
  }
}

void BlockDiag(Lowering& n) {
  Emitter& e = n.emit();
  struct Block {
    ValueId id;
    Num columns;
  };
  std::vector<Block> blocks;
  Num all = Num::Of(0);
  for (const Operand& x : n.Args("tensors")) {
    if (!x || x.rank() > 2) return n.Fail("blocks that are no matrices");
    const Num columns = x.rank() == 0 ? Num::Of(1) : n.Size(x, x.rank() - 1);
    blocks.push_back(
        {e.Cast(AtLeast(e, x, 2), x.dtype(), n.OutType(0)), columns});
    all = e.Add(all, columns);
  }
  if (blocks.empty()) return n.Fail("there is nothing to put together");
  Num before = Num::Of(0);
  std::vector<ValueId> rows;
  for (const Block& block : blocks) {
    const Num after = e.Sub(all, e.Add(before, block.columns));
    rows.push_back(e.Op(
        "Pad", {block.id, e.List({Num::Of(0), before, Num::Of(0), after})}));
    before = e.Add(before, block.columns);
  }
  n.Return(e.Concat(std::move(rows), 0));
}

void CartesianProd(Lowering& n) {
  const std::vector<Operand> lists = n.Args("tensors");
  Emitter& e = n.emit();
  if (lists.empty() || lists.size() > 8) return n.Fail("this many lists");
  std::vector<Num> sizes;
  for (const Operand& list : lists) {
    if (!list || list.rank() > 1) return n.Fail("lists are needed");
    sizes.push_back(list.rank() == 0 ? Num::Of(1) : n.Size(list, 0));
  }
  if (lists.size() == 1) return n.Return(lists[0].id);
  std::vector<ValueId> columns;
  for (size_t i = 0; i < lists.size(); ++i) {
    std::vector<Num> one(lists.size(), Num::Of(1));
    one[i] = sizes[i];
    const ValueId wide = e.Expand(e.Reshape(lists[i].id, one), e.List(sizes));
    columns.push_back(e.Unsqueeze(e.Reshape(wide, {Num::Of(-1)}), {1}));
  }
  n.Return(e.Concat(std::move(columns), 1));
}

// Along the first axis, the second (of a list the first), or the third.
int64_t SplitAxis(const Operand& x, int which) {
  return which == 1 && x.rank() == 1 ? 0 : which;
}
template <int kAxis>
void EqualParts(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = SplitAxis(x, kAxis);
  const int64_t count = n.Int("sections", 1);
  if (axis >= x.rank() || count != static_cast<int64_t>(n.num_outputs())) {
    return n.Fail("parts along an axis that is not there");
  }
  const auto parts =
      n.emit().Ops("Split", {x.id}, {{"axis", axis}, {"num_outputs", count}},
                   n.num_outputs());
  for (size_t i = 0; i < parts.size(); ++i) n.Return(i, parts[i]);
}
template <int kAxis>
void PartsAt(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = SplitAxis(x, kAxis);
  std::vector<int64_t> ends = n.Ints("indices");
  ends.push_back(kToEnd);
  if (axis >= x.rank() || ends.size() != n.num_outputs()) {
    return n.Fail("parts along an axis that is not there");
  }
  Num begin = Num::Of(0);
  for (size_t i = 0; i < ends.size(); ++i) {
    const Num end = Num::Of(ends[i]);
    n.Return(i, n.emit().Slice(x.id, axis, begin, end, Num::Of(1)));
    begin = end;
  }
}

// Quarter turns from the first axis named to the second.
void Rot90(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<int64_t> dims = n.Ints("dims");
  if (dims.empty()) dims = {0, 1};
  for (int64_t& axis : dims) axis += axis < 0 ? x.rank() : 0;
  if (dims.size() != 2 || dims[0] == dims[1] ||
      std::min(dims[0], dims[1]) < 0 ||
      std::max(dims[0], dims[1]) >= x.rank()) {
    return n.Fail("a turn from an axis to itself");
  }
  const int64_t turns = ((n.Int("k", 1) % 4) + 4) % 4;
  Emitter& e = n.emit();
  const auto flipped = [&](ValueId id, int64_t axis) {
    return e.Slice(id, axis, Num::Of(-1),
                   Num::Of(std::numeric_limits<int64_t>::min()), Num::Of(-1));
  };
  ValueId y = x.id;
  if (turns == 1 || turns == 2) y = flipped(y, dims[1]);
  if (turns == 2 || turns == 3) y = flipped(y, dims[0]);
  if (turns % 2 == 1) {
    std::vector<int64_t> order(static_cast<size_t>(x.rank()));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[static_cast<size_t>(dims[0])],
              order[static_cast<size_t>(dims[1])]);
    y = e.Transpose(y, order);
  }
  n.Return(y);
}

void MSort(Lowering& n) {
  const Operand x = n.Arg("self");
  if (x.rank() == 0) return n.Return(x.id);
  n.Return(n.emit().Ops(
      "TopK", {x.id, n.emit().List({n.Size(x, 0)})},
      {{"axis", int64_t{0}}, {"largest", int64_t{0}}, {"sorted", int64_t{1}}},
      2)[0]);
}

// ---- rows and their distances ----
// |x| of order p along the axes.
ValueId NormOf(Emitter& e, ValueId x, DType type, double p, ValueId axes,
               int64_t keep = 0) {
  const Attrs attrs = {{"keepdims", keep}};
  if (p == 1) return e.Op("ReduceL1", {x, axes}, attrs);
  if (p == 2) return e.Op("ReduceL2", {x, axes}, attrs);
  const ValueId size = e.Op("Abs", {x});
  if (std::isinf(p)) {
    return e.Op(p > 0 ? "ReduceMax" : "ReduceMin", {size, axes}, attrs);
  }
  if (p == 0) {
    return e.Op("ReduceSum", {e.Op("Sign", {size}), axes}, attrs);
  }
  const ValueId sum =
      e.Op("ReduceSum", {e.Op("Pow", {size, e.Number(p, type)}), axes}, attrs);
  return e.Op("Pow", {sum, e.Number(1 / p, type)});
}

void Dist(Lowering& n) {
  const Pair pair = Operands(n, true);
  Emitter& e = n.emit();
  const int rank = std::max(n.Arg("self").rank(), n.Arg("other").rank());
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  n.Return(NormOf(e, e.Op("Sub", {pair.a, pair.b}), pair.type, n.Real("p", 2),
                  e.Ints(axes)));
}

// Of each row from each later one.
void PDist(Lowering& n) {
  const Operand x = n.Arg("self");
  if (x.rank() != 2 || !x.meta->sizes[0].fixed ||
      x.meta->sizes[0].hint > (1 << 10)) {
    return n.Fail("distances within a number of rows that is not fixed");
  }
  std::vector<int64_t> one;
  std::vector<int64_t> other;
  for (int64_t i = 0; i < x.meta->sizes[0].hint; ++i) {
    for (int64_t j = i + 1; j < x.meta->sizes[0].hint; ++j) {
      one.push_back(i);
      other.push_back(j);
    }
  }
  Emitter& e = n.emit();
  const auto rows = [&](const std::vector<int64_t>& places) {
    return e.Op("Gather", {x.id, e.Ints(places)}, {{"axis", int64_t{0}}});
  };
  n.Return(NormOf(e, e.Op("Sub", {rows(one), rows(other)}), x.dtype(),
                  n.Real("p", 2), e.Ints({1})));
}

void NormExceptDim(Lowering& n) {
  const Operand x = n.Arg("v");
  const int64_t kept = n.Int("dim", 0);
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (kept == -1 || axis != n.Axis("dim", 0, x.rank())) axes.push_back(axis);
  }
  n.Return(NormOf(n.emit(), x.id, x.dtype(),
                  static_cast<double>(n.Int("pow", 2)), n.emit().Ints(axes),
                  kept == -1 ? 0 : 1));
}

void NanMean(Lowering& n) {
  const Input x = Real(n);
  Emitter& e = n.emit();
  const ValueId axes = e.Ints(n.Axes("dim", x.rank));
  const Attrs attrs = {{"keepdims", int64_t{n.Flag("keepdim", false)}}};
  const ValueId is_nan = e.Op("IsNaN", {x.id});
  const ValueId sum =
      e.Op("ReduceSum",
           {e.Op("Where", {is_nan, e.Number(0, x.type), x.id}), axes}, attrs);
  const ValueId count =
      e.Op("ReduceSum",
           {e.Cast(e.Op("Not", {is_nan}), DType::kBool, x.type), axes}, attrs);
  n.ReturnAs(x.type, e.Op("Div", {sum, count}));
}

// ---- integrals ----
// Means of neighbours times how far they are apart.
void Trapezoid(Lowering& n) {
  const Input y = Real(n, "y");
  Emitter& e = n.emit();
  const int64_t axis = n.Axis("dim", -1, y.rank);
  const Num one = Num::Of(1);
  const auto later = [&](ValueId id, int64_t along) {
    return e.Slice(id, along, one, Num::Of(kToEnd), one);
  };
  const auto earlier = [&](ValueId id, int64_t along) {
    return e.Slice(id, along, Num::Of(0), Num::Of(-1), one);
  };
  ValueId apart = kNoValue;
  if (n.Has("x")) {
    const Input x = Real(n, "x");
    const int64_t along = x.rank == 1 ? 0 : axis;
    if (x.rank != 1 && x.rank != y.rank) return n.Fail("places of other rank");
    apart = e.Cast(e.Op("Sub", {later(x.id, along), earlier(x.id, along)}),
                   x.type, y.type);
    std::vector<int64_t> added;
    for (int64_t i = axis + 1; x.rank == 1 && i < y.rank; ++i) {
      added.push_back(i - axis);
    }
    if (!added.empty()) apart = e.Unsqueeze(apart, added);
  } else {
    apart = e.Number(n.Real("dx", 1), y.type);
  }
  const ValueId both = e.Op("Add", {later(y.id, axis), earlier(y.id, axis)});
  const ValueId sum =
      e.Op("ReduceSum", {e.Op("Mul", {both, apart}), e.Ints({axis})},
           {{"keepdims", int64_t{0}}});
  n.Return(e.Op("Div", {sum, e.Number(2, y.type)}));
}

// ---- the commonest value ----
// Each element is compared with all others of its row; of equally common ones
// the least is taken, at its last place.
void Mode(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  if (x.rank() == 0 || x.dtype() == DType::kBool) {
    return n.Fail("the commonest of truths or of one number");
  }
  const int64_t axis = n.Axis("dim", -1, x.rank());
  const int64_t last = x.rank() - 1;
  std::vector<int64_t> order(static_cast<size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + axis);
  order.push_back(axis);
  const ValueId rows = axis == last ? x.id : e.Transpose(x.id, order);
  const Attrs keep = {{"keepdims", int64_t{1}}};
  const Attrs drop = {{"keepdims", int64_t{0}}};
  const ValueId at_last = e.Ints({last});
  const ValueId equal =
      e.Op("Equal", {e.Unsqueeze(rows, {last + 1}), e.Unsqueeze(rows, {last})});
  const ValueId counts = e.Op(
      "ReduceSum",
      {e.Cast(equal, DType::kBool, DType::kI64), e.Ints({last + 1})}, drop);
  const ValueId common =
      e.Op("Equal", {counts, e.Op("ReduceMax", {counts, at_last}, keep)});
  const ValueId greatest = e.Op("ReduceMax", {rows, at_last}, keep);
  const ValueId value = e.Op(
      "ReduceMin", {e.Op("Where", {common, rows, greatest}), at_last}, keep);
  const ValueId places =
      e.Op("Range", {e.Integer(0, DType::kI64),
                     e.Value(e.SizeOf(rows, last), DType::kI64),
                     e.Integer(1, DType::kI64)});
  const ValueId here = e.Op("Where", {e.Op("Equal", {rows, value}), places,
                                      e.Integer(-1, DType::kI64)});
  const ValueId place = e.Op("ReduceMax", {here, at_last}, drop);
  const bool keepdim = n.Flag("keepdim", false);
  const ValueId found = e.Squeeze(value, {last});
  n.Return(0, keepdim ? e.Unsqueeze(found, {axis}) : found);
  n.Return(1, keepdim ? e.Unsqueeze(place, {axis}) : place);
}

// ---- products of bytes ----
void IntMm(Lowering& n) {
  n.Return(n.emit().Op("MatMulInteger", {n.In("self"), n.In("mat2")}));
}

// self · mat2ᵀ · scales, with a row of bytes and a scale for each result.
void WeightInt8PackMm(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand w = n.Arg("mat2");
  const Operand scales = n.Arg("scales");
  if (w.rank() != 2) return n.Fail("weights that are no matrix");
  Emitter& e = n.emit();
  const ValueId product =
      e.Op("MatMul",
           {x.id, e.Transpose(e.Cast(w.id, w.dtype(), x.dtype()), {1, 0})});
  n.Return(
      e.Op("Mul", {product, e.Cast(scales.id, scales.dtype(), x.dtype())}));
}

constexpr AtenOp kRows[] = {
    {"aten.lgamma.default", Lgamma},
    {"aten.digamma.default", Digamma},
    {"aten.erfinv.default", ErfInv},
    {"aten.special_ndtri.default", Ndtri},
    {"aten.mvlgamma.default", MultivariateLgamma},
    {"aten.logaddexp2.default", LogAddExp2},
    {"aten.atleast_1d.default", AtLeastOne<1>, Alias::kAlways},
    {"aten.atleast_2d.default", AtLeastOne<2>, Alias::kAlways},
    {"aten.atleast_3d.default", AtLeastOne<3>, Alias::kAlways},
    {"aten.atleast_1d.Sequence", AtLeastAll<1>},
    {"aten.atleast_2d.Sequence", AtLeastAll<2>},
    {"aten.atleast_3d.Sequence", AtLeastAll<3>},
    {"aten.block_diag.default", BlockDiag},
    {"aten.cartesian_prod.default", CartesianProd},
    {"aten.vsplit.int", EqualParts<0>, Alias::kAlways},
    {"aten.hsplit.int", EqualParts<1>, Alias::kAlways},
    {"aten.dsplit.int", EqualParts<2>, Alias::kAlways},
    {"aten.vsplit.array", PartsAt<0>, Alias::kAlways},
    {"aten.hsplit.array", PartsAt<1>, Alias::kAlways},
    {"aten.dsplit.array", PartsAt<2>, Alias::kAlways},
    {"aten.rot90.default", Rot90},
    {"aten.msort.default", MSort},
    {"aten.dist.default", Dist},
    {"aten.pdist.default", PDist},
    {"aten._pdist_forward.default", PDist},
    {"aten.norm_except_dim.default", NormExceptDim},
    {"aten.nanmean.default", NanMean},
    {"aten.trapezoid.x", Trapezoid},
    {"aten.trapezoid.dx", Trapezoid},
    {"aten.trapz.x", Trapezoid},
    {"aten.trapz.dx", Trapezoid},
    {"aten.mode.default", Mode},
    {"aten._int_mm.default", IntMm},
    {"aten._weight_int8pack_mm.default", WeightInt8PackMm},
};

}  // namespace

std::span<const AtenOp> RareRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
