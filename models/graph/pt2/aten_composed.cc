// Operators that are others put together.
#include <algorithm>
#include <limits>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/sides.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

// ---- joined and cut ----
// Operands of fewer axes get those at `added` before they are joined.
void Joined(Lowering& n, int rank, const std::vector<int64_t>& of_lists,
            const std::vector<int64_t>& of_matrices, int64_t axis) {
  Emitter& e = n.emit();
  std::vector<ValueId> parts;
  for (const Operand& part : n.Args("tensors")) {
    if (!part || part.rank() == 0) return n.Fail("lists are needed");
    ValueId id = e.Cast(part.id, part.dtype(), n.OutType(0));
    if (part.rank() == 1 && rank > 1) id = e.Unsqueeze(id, of_lists);
    if (part.rank() == 2 && rank > 2) id = e.Unsqueeze(id, of_matrices);
    if (part.rank() == 1 && rank == 1) axis = 0;
    parts.push_back(id);
  }
  if (parts.empty()) return n.Fail("there is nothing to put together");
  n.Return(e.Concat(std::move(parts), axis));
}
void HStack(Lowering& n) { Joined(n, 1, {}, {}, 1); }
void VStack(Lowering& n) { Joined(n, 2, {0}, {}, 0); }
void DStack(Lowering& n) { Joined(n, 3, {0, 2}, {2}, 2); }
void ColumnStack(Lowering& n) { Joined(n, 2, {1}, {}, 1); }

void Cut(Lowering& n, const Operand& x, int64_t axis,
         const std::vector<int64_t>& ends) {
  Emitter& e = n.emit();
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    n.Return(i,
             e.Slice(x.id, axis, Num::Of(begin), Num::Of(ends[i]), Num::Of(1)));
    begin = ends[i];
  }
}

// Into equal parts, the first of them one longer where that does not go up.
void TensorSplit(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", 0, x.rank());
  const int64_t sections = n.Int("sections", 1);
  if (x.rank() == 0 || sections < 1 || sections > (1 << 16) ||
      !x.meta->sizes[static_cast<size_t>(axis)].fixed) {
    return n.Fail("parts of a size that is not fixed");
  }
  const int64_t size = x.meta->sizes[static_cast<size_t>(axis)].hint;
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (int64_t i = 0; i < sections; ++i) {
    end += size / sections + (i < size % sections ? 1 : 0);
    ends.push_back(end);
  }
  Cut(n, x, axis, ends);
}
void TensorSplitAt(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<int64_t> ends = n.Ints("indices");
  ends.push_back(kToEnd);
  Cut(n, x, n.Axis("dim", 0, x.rank()), ends);
}

void Reversed(Lowering& n, int64_t axis) {
  const Operand x = n.Arg("self");
  if (x.rank() <= axis) return n.Fail("an operand of more axes is needed");
  n.Return(n.emit().Slice(x.id, axis, Num::Of(-1),
                          Num::Of(std::numeric_limits<int64_t>::min()),
                          Num::Of(-1)));
}
void FlipUd(Lowering& n) { Reversed(n, 0); }
void FlipLr(Lowering& n) { Reversed(n, 1); }

void Diff(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", -1, x.rank());
  if (n.Int("n", 1) != 1) return n.Fail("differences of a higher order");
  Emitter& e = n.emit();
  std::vector<ValueId> parts = {n.InOrNone("prepend"), x.id,
                                n.InOrNone("append")};
  std::erase(parts, kNoValue);
  const ValueId y = parts.size() > 1 ? e.Concat(parts, axis) : x.id;
  const Num one = Num::Of(1);
  n.Return(e.Op("Sub", {e.Slice(y, axis, one, Num::Of(kToEnd), one),
                        e.Slice(y, axis, Num::Of(0), Num::Of(-1), one)}));
}

void BroadcastTensors(Lowering& n) {
  const std::vector<Operand> all = n.Args("tensors");
  Emitter& e = n.emit();
  for (size_t i = 0; i < all.size(); ++i) {
    ValueId y = all[i].id;
    for (size_t j = 0; j < all.size(); ++j) {
      if (j != i) y = e.Expand(y, e.Shape(all[j].id));
    }
    n.Return(i, y);
  }
}

// The second half of each axis comes first.
void Shifted(Lowering& n, bool back) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  ValueId y = x.id;
  for (const int64_t axis : n.Axes("dim", x.rank())) {
    const Num size = n.Size(x, axis);
    const Num half = e.FloorDiv(size, Num::Of(2));
    const Num cut = back ? half : e.Sub(size, half);
    y = e.Concat({e.Slice(y, axis, cut, Num::Of(kToEnd), Num::Of(1)),
                  e.Slice(y, axis, Num::Of(0), cut, Num::Of(1))},
                 axis);
  }
  n.Return(y);
}
void FftShift(Lowering& n) { Shifted(n, false); }
void IfftShift(Lowering& n) { Shifted(n, true); }

void DiagEmbed(Lowering& n) {
  const Operand x = n.Arg("self");
  if (x.rank() == 0 || n.Int("offset", 0) != 0 || n.Int("dim1", -2) != -2 ||
      n.Int("dim2", -1) != -1) {
    return n.Fail("a diagonal elsewhere");
  }
  Emitter& e = n.emit();
  const ValueId places =
      e.Op("Range", {e.Integer(0, DType::kI64),
                     e.Value(n.Size(x, x.rank() - 1), DType::kI64),
                     e.Integer(1, DType::kI64)});
  const ValueId on = e.Op("Equal", {e.Unsqueeze(places, {1}), places});
  n.Return(e.Op("Where",
                {on, e.Unsqueeze(x.id, {x.rank()}), e.Number(0, x.dtype())}));
}

// ---- picked and placed ----
void TakeAlongDim(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand places = n.Arg("indices");
  if (!n.Has("dim") || x.rank() != places.rank()) {
    return n.Fail("places of another rank");
  }
  n.Return(n.emit().Op("GatherElements", {x.id, places.id},
                       {{"axis", n.Axis("dim", 0, x.rank())}}));
}

void IndexFill(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", 0, x.rank());
  const Operand index = n.Arg("index");
  if (index.rank() != 1 || x.rank() == 0) {
    return n.Fail("a list of places is needed, and an axis for them");
  }
  Emitter& e = n.emit();
  const Num size = n.Size(x, axis);
  const ValueId all =
      e.Op("Range", {e.Integer(0, DType::kI64), e.Value(size, DType::kI64),
                     e.Integer(1, DType::kI64)});
  // Places may be counted from the end.
  const ValueId there =
      e.Op("Mod", {e.Cast(index.id, index.dtype(), DType::kI64),
                   e.Value(size, DType::kI64)});
  const ValueId hit = e.Cast(e.Op("Equal", {e.Unsqueeze(all, {1}), there}),
                             DType::kBool, DType::kU8);
  std::vector<Num> wide(static_cast<size_t>(x.rank()), Num::Of(1));
  wide[static_cast<size_t>(axis)] = size;
  const ValueId mask = e.Reshape(
      e.Cast(e.Op("ReduceMax", {hit, e.Ints({1})}, {{"keepdims", int64_t{0}}}),
             DType::kU8, DType::kBool),
      wide);
  const ValueId value = As(n, SideOf(n, "value"), x.dtype());
  n.Return(e.Op("Where", {mask, value, x.id}));
}

// Elements of the source, in order, to where the mask is set.
void MaskedScatter(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand source = n.Arg("source");
  Emitter& e = n.emit();
  const ValueId mask = e.Expand(n.In("mask"), e.Shape(x.id));
  const ValueId flat = e.Reshape(mask, {Num::Of(-1)});
  const ValueId count = e.Op("CumSum", {e.Cast(flat, DType::kBool, DType::kI64),
                                        e.Integer(0, DType::kI64)});
  const ValueId place =
      e.Op("Max", {e.Op("Sub", {count, e.Integer(1, DType::kI64)}),
                   e.Integer(0, DType::kI64)});
  const ValueId picked =
      e.Op("Gather", {e.Reshape(source.id, {Num::Of(-1)}), place});
  n.Return(e.Op("Where", {mask, e.ReshapeLike(picked, x.id), x.id}));
}

// The coordinates of what is not zero: one list for each axis.
void WhereTrue(Lowering& n) {
  Emitter& e = n.emit();
  // where(condition) and nonzero_numpy(self)
  const ValueId places =
      e.Op("NonZero", {n.In(n.Has("condition") ? "condition" : "self")});
  for (size_t i = 0; i < n.num_outputs(); ++i) {
    n.Return(i, e.Op("Gather",
                     {places, e.Integer(static_cast<int64_t>(i), DType::kI64)},
                     {{"axis", int64_t{0}}}));
  }
}
void ArgWhere(Lowering& n) {
  Emitter& e = n.emit();
  n.Return(e.Transpose(e.Op("NonZero", {n.In("self")}), {1, 0}));
}

// The element of rank k along an axis, and where it is.
void Ranked(Lowering& n, const Num& k) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", -1, x.rank());
  Emitter& e = n.emit();
  const auto sorted = e.Ops(
      "TopK", {x.id, e.List({n.Size(x, axis)})},
      {{"axis", axis}, {"largest", int64_t{0}}, {"sorted", int64_t{1}}}, 2);
  const ValueId place = e.Value(k, DType::kI64);
  for (size_t i = 0; i < 2; ++i) {
    const ValueId y = e.Op("Gather", {sorted[i], place}, {{"axis", axis}});
    n.Return(i, n.Flag("keepdim", false) ? e.Unsqueeze(y, {axis}) : y);
  }
}
void Median(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const Num size = n.Size(x, n.Axis("dim", -1, x.rank()));
  Ranked(n, e.FloorDiv(e.Sub(size, Num::Of(1)), Num::Of(2)));
}
void KthValue(Lowering& n) {
  Ranked(n, n.emit().Sub(n.Number("k"), Num::Of(1)));
}

// ---- products and norms ----
void CrossAlong(Lowering& n, int64_t axis) {
  const Operand a = n.Arg("self");
  const Operand b = n.Arg("other");
  if (a.rank() != b.rank()) return n.Fail("operands of different ranks");
  Emitter& e = n.emit();
  const auto turned = [&](const Operand& x, const std::vector<int64_t>& order) {
    return e.Op("Gather", {x.id, e.Ints(order)}, {{"axis", axis}});
  };
  n.Return(
      e.Op("Sub", {e.Op("Mul", {turned(a, {1, 2, 0}), turned(b, {2, 0, 1})}),
                   e.Op("Mul", {turned(a, {2, 0, 1}), turned(b, {1, 2, 0})})}));
}

void LinalgCross(Lowering& n) {
  CrossAlong(n, n.Axis("dim", -1, n.Arg("self").rank()));
}
// Without an axis along the first one of three elements.
void Cross(Lowering& n) {
  if (n.Has("dim")) return LinalgCross(n);
  const Operand a = n.Arg("self");
  for (int axis = 0; axis < a.rank(); ++axis) {
    const Dim& dim = a.meta->sizes[static_cast<size_t>(axis)];
    if (dim.fixed && dim.hint == 3) return CrossAlong(n, axis);
  }
  n.Fail("no axis has three elements");
}

void PairwiseDistance(Lowering& n) {
  const Operand a = n.Arg("x1");
  const double p = n.Real("p", 2);
  if (p != 1 && p != 2) return n.Fail("a distance of another order");
  Emitter& e = n.emit();
  const ValueId away = e.Op("Add", {e.Op("Sub", {a.id, n.In("x2")}),
                                    e.Number(n.Real("eps", 1e-6), a.dtype())});
  n.Return(e.Op(p == 1 ? "ReduceL1" : "ReduceL2", {away, e.Ints({-1})},
                {{"keepdims", int64_t{n.Flag("keepdim", false)}}}));
}

void NanSum(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId y =
      IsFloat(x.dtype())
          ? e.Op("Where", {e.Op("IsNaN", {x.id}), e.Number(0, x.dtype()), x.id})
          : x.id;
  n.Return(e.Op(
      "ReduceSum",
      {e.Cast(y, x.dtype(), n.OutType(0)), e.Ints(n.Axes("dim", x.rank()))},
      {{"keepdims", int64_t{n.Flag("keepdim", false)}}}));
}

void RoundTo(Lowering& n) {
  const Operand x = n.Arg("self");
  double scale = 1;
  for (int64_t i = n.Int("decimals", 0); i > 0 && scale < 1e30; --i) {
    scale *= 10;
  }
  if (n.Int("decimals", 0) < 0) return n.Fail("rounding to tens");
  Emitter& e = n.emit();
  const ValueId by = e.Number(scale, x.dtype());
  n.Return(e.Op("Div", {e.Op("Round", {e.Op("Mul", {x.id, by})}), by}));
}

// ---- one step of a recurrent layer ----
ValueId Gates(Lowering& n, ValueId x, const char* weight, const char* bias) {
  return n.emit().Op("Linear", {x, n.In(weight), n.InOrNone(bias)});
}

void LstmCell(Lowering& n) {
  const std::vector<Operand> state = n.Args("hx");
  if (state.size() != 2 || !state[0] || !state[1]) {
    return n.Fail("two states are needed");
  }
  Emitter& e = n.emit();
  const ValueId sum = e.Op("Add", {Gates(n, n.In("input"), "w_ih", "b_ih"),
                                   Gates(n, state[0].id, "w_hh", "b_hh")});
  const auto gate = e.Ops(
      "Split", {sum}, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{4}}}, 4);
  const ValueId cell = e.Op(
      "Add",
      {e.Op("Mul", {e.Op("Sigmoid", {gate[1]}), state[1].id}),
       e.Op("Mul", {e.Op("Sigmoid", {gate[0]}), e.Op("Tanh", {gate[2]})})});
  n.Return(0, e.Op("Mul", {e.Op("Sigmoid", {gate[3]}), e.Op("Tanh", {cell})}));
  n.Return(1, cell);
}

void GruCell(Lowering& n) {
  const Operand h = n.Arg("hx");
  Emitter& e = n.emit();
  const Attrs thirds = {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}};
  const auto x =
      e.Ops("Split", {Gates(n, n.In("input"), "w_ih", "b_ih")}, thirds, 3);
  const auto s = e.Ops("Split", {Gates(n, h.id, "w_hh", "b_hh")}, thirds, 3);
  const ValueId r = e.Op("Sigmoid", {e.Op("Add", {x[0], s[0]})});
  const ValueId z = e.Op("Sigmoid", {e.Op("Add", {x[1], s[1]})});
  const ValueId fresh =
      e.Op("Tanh", {e.Op("Add", {x[2], e.Op("Mul", {r, s[2]})})});
  // (1 - z) · fresh + z · h
  n.Return(e.Op("Add", {fresh, e.Op("Mul", {z, e.Op("Sub", {h.id, fresh})})}));
}

void RnnCell(Lowering& n, const char* activation) {
  Emitter& e = n.emit();
  n.Return(
      e.Op(activation, {e.Op("Add", {Gates(n, n.In("input"), "w_ih", "b_ih"),
                                     Gates(n, n.In("hx"), "w_hh", "b_hh")})}));
}
void RnnTanhCell(Lowering& n) { RnnCell(n, "Tanh"); }
void RnnReluCell(Lowering& n) { RnnCell(n, "Relu"); }

constexpr AtenOp kRows[] = {
    {"aten.hstack.default", HStack},
    {"aten.vstack.default", VStack},
    {"aten.dstack.default", DStack},
    {"aten.column_stack.default", ColumnStack},
    {"aten.tensor_split.sections", TensorSplit},
    {"aten.tensor_split.indices", TensorSplitAt},
    {"aten.flipud.default", FlipUd},
    {"aten.fliplr.default", FlipLr},
    {"aten.diff.default", Diff},
    {"aten.broadcast_tensors.default", BroadcastTensors},
    {"aten.fft_fftshift.default", FftShift},
    {"aten.fft_ifftshift.default", IfftShift},
    {"aten.diag_embed.default", DiagEmbed},
    {"aten.take_along_dim.default", TakeAlongDim},
    {"aten.index_fill.int_Scalar", IndexFill},
    {"aten.index_fill.int_Tensor", IndexFill},
    {"aten.masked_scatter.default", MaskedScatter},
    {"aten.where.default", WhereTrue},
    {"aten.nonzero_numpy.default", WhereTrue},
    {"aten.argwhere.default", ArgWhere},
    {"aten.median.dim", Median},
    {"aten.kthvalue.default", KthValue},
    {"aten.cross.default", Cross},
    {"aten.linalg_cross.default", LinalgCross},
    {"aten.pairwise_distance.default", PairwiseDistance},
    {"aten.nansum.default", NanSum},
    {"aten.round.decimals", RoundTo},
    {"aten.lstm_cell.default", LstmCell},
    {"aten.gru_cell.default", GruCell},
    {"aten.rnn_tanh_cell.default", RnnTanhCell},
    {"aten.rnn_relu_cell.default", RnnReluCell},
};

}  // namespace

std::span<const AtenOp> ComposedRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
