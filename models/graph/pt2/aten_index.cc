// Elements chosen by other tensors: indexing, embeddings, scattering.
#include <algorithm>
#include <limits>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// Truth values count as the places where they are true.
struct Indices {
  std::vector<int64_t> axes;  // of the operand, ascending
  std::vector<ValueId> values;
  int64_t num_masks = 0;
};

Indices IndicesOf(Lowering& n) {
  Indices found;
  Emitter& e = n.emit();
  int64_t axis = 0;
  for (const Operand& index : n.Args("indices")) {
    if (!index) {
      ++axis;
      continue;
    }
    if (index.dtype() != DType::kBool && index.dtype() != DType::kU8) {
      found.axes.push_back(axis++);
      found.values.push_back(index.id);
      continue;
    }
    ++found.num_masks;
    const ValueId mask = e.Cast(index.id, index.dtype(), DType::kBool);
    const ValueId places = e.Op("NonZero", {mask});
    for (int64_t i = 0; i < index.rank(); ++i) {
      found.axes.push_back(axis++);
      found.values.push_back(e.Op("Gather", {places, e.Integer(i, DType::kI64)},
                                  {{"axis", int64_t{0}}}));
    }
  }
  return found;
}

void Index(Lowering& n) {
  const Operand x = n.Arg("self");
  const Indices indices = IndicesOf(n);
  Emitter& e = n.emit();
  if (indices.values.empty()) return n.Return(x.id);
  if (indices.values.size() == 1) {
    return n.Return(
        e.Op("Gather", {x.id, indices.values[0]}, {{"axis", indices.axes[0]}}));
  }
  std::vector<ValueId> operands = {x.id};
  operands.insert(operands.end(), indices.values.begin(), indices.values.end());
  n.Return(e.Op("Index", std::move(operands), {{"axes", indices.axes}}));
}

void IndexPut(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand values = n.Arg("values");
  const bool accumulate = n.Flag("accumulate", false);
  Emitter& e = n.emit();
  const std::vector<Operand> given = n.Args("indices");
  if (given.size() == 1 && given[0].meta != nullptr &&
      given[0].dtype() == DType::kBool && values.rank() == 0 && !accumulate) {
    // One value wherever the mask is true.
    std::vector<int64_t> behind;
    for (int64_t i = given[0].rank(); i < x.rank(); ++i) behind.push_back(i);
    const ValueId mask = e.Unsqueeze(given[0].id, behind);
    return n.Return(e.Op("Where", {mask, values.id, x.id}));
  }
  const Indices indices = IndicesOf(n);
  if (indices.values.empty()) return n.Fail("it has no indices");
  std::vector<ValueId> operands = {x.id, values.id};
  operands.insert(operands.end(), indices.values.begin(), indices.values.end());
  n.Return(e.Op(
      "IndexPut", std::move(operands),
      {{"axes", indices.axes}, {"accumulate", int64_t{accumulate ? 1 : 0}}}));
}

void IndexSelect(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(n.emit().Op("Gather", {x.id, n.In("index")},
                       {{"axis", n.Axis("dim", 0, x.rank())}}));
}

void Embedding(Lowering& n) {
  n.Return(n.emit().Op("Gather", {n.In("weight"), n.In("indices")},
                       {{"axis", int64_t{0}}}));
}

// mode: 0 sum, 1 mean, 2 max.
void EmbeddingBag(Lowering& n) {
  constexpr const char* kModes[] = {"sum", "mean", "max"};
  const int64_t mode = n.Int("mode", 0);
  if (mode < 0 || mode > 2) return n.Fail("mode out of range");
  const Operand indices = n.Arg("indices");
  const Operand offsets = n.Arg("offsets");
  Emitter& e = n.emit();
  std::vector<ValueId> operands = {
      n.In("weight"), indices.id,
      e.Cast(offsets.id, offsets.dtype(), indices.dtype())};
  if (n.Has("per_sample_weights")) {
    operands.push_back(n.In("per_sample_weights"));
  }
  Attrs attrs = {{"mode", std::string(kModes[mode])},
                 {"include_last_offset",
                  int64_t{n.Flag("include_last_offset", false) ? 1 : 0}}};
  const int64_t padding = n.Int("padding_idx", -1);
  if (padding >= 0) attrs.Set("padding_idx", padding);
  n.Return(0, e.Op("EmbeddingBag", std::move(operands), std::move(attrs)));
}

// Of rows in bytes with a scale and a bias each, as
// quantized::embedding_bag_byte_prepack makes them. PyTorch's own kernel takes
// sums in every mode, so that what another one means is not known.
void ByteEmbeddingBag(Lowering& n) {
  if (n.Has("compressed_indices_mapping") || n.Flag("pruned_weights", false)) {
    return n.Fail("a pruned table");
  }
  if (n.Int("mode", 0) != 0) return n.Fail("a mode other than 0, the sum");
  const Operand indices = n.Arg("indices");
  Emitter& e = n.emit();
  std::vector<ValueId> operands = {n.In("weight"), indices.id};
  if (n.Has("offsets")) {
    const Operand offsets = n.Arg("offsets");
    operands.push_back(e.Cast(offsets.id, offsets.dtype(), indices.dtype()));
  } else {
    operands.push_back(kNoValue);
  }
  if (n.Has("per_sample_weights")) {
    operands.push_back(n.In("per_sample_weights"));
  }
  n.Return(e.Op("EmbeddingBag", std::move(operands),
                {{"mode", std::string("sum")},
                 {"rowwise", int64_t{1}},
                 {"include_last_offset",
                  int64_t{n.Flag("include_last_offset", false) ? 1 : 0}}}));
}

// Of `x` as much along each axis as `like` has: PyTorch reads only that.
ValueId CutLike(Lowering& n, const Operand& x, const Operand& like,
                int64_t but_axis) {
  ValueId cut = x.id;
  for (int axis = 0; axis < x.rank() && axis < like.rank(); ++axis) {
    const Dim& own = x.meta->sizes[static_cast<size_t>(axis)];
    const Dim& other = like.meta->sizes[static_cast<size_t>(axis)];
    const bool equal = own.fixed == other.fixed && own.hint == other.hint &&
                       own.symbol == other.symbol;
    if (axis == but_axis || equal) continue;
    cut = n.emit().Slice(cut, axis, Num::Of(0), n.Size(like, axis), Num::Of(1));
  }
  return cut;
}

void Gather(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand index = n.Arg("index");
  if (x.rank() == 0 || index.rank() != x.rank()) {
    return n.Fail("operand and index are of different rank");
  }
  const int64_t axis = n.Axis("dim", 0, x.rank());
  n.Return(n.emit().Op("GatherElements", {CutLike(n, x, index, axis), index.id},
                       {{"axis", axis}}));
}

void ScatterBy(Lowering& n, const char* reduction) {
  const Operand x = n.Arg("self");
  const Operand index = n.Arg("index");
  Emitter& e = n.emit();
  if (x.rank() == 0 || index.rank() != x.rank()) {
    return n.Fail("operand and index are of different rank");
  }
  ValueId updates = kNoValue;
  if (n.Has("src")) {
    const Operand source = n.Arg("src");
    updates = CutLike(n, source, index, -1);
  } else {
    updates =
        e.Expand(e.Value(n.Number("value"), x.dtype()), e.Shape(index.id));
  }
  n.Return(e.Op("ScatterElements", {x.id, index.id, updates},
                {{"axis", n.Axis("dim", 0, x.rank())},
                 {"reduction", std::string(reduction)}}));
}
void Scatter(Lowering& n) { ScatterBy(n, "none"); }
void ScatterAdd(Lowering& n) { ScatterBy(n, "add"); }
void ScatterReducing(Lowering& n) {
  const std::string_view reduce = n.Text("reduce", "");
  if (reduce != "add" && reduce != "multiply") {
    return n.Fail("a reduction other than 'add' and 'multiply'");
  }
  ScatterBy(n, reduce == "add" ? "add" : "mul");
}

// Of the tensor as one list.
void Take(Lowering& n) {
  n.Return(n.emit().Op(
      "Gather", {n.emit().Reshape(n.In("self"), {Num::Of(-1)}), n.In("index")},
      {{"axis", int64_t{0}}}));
}

// What the first update meets where the operand's own numbers do not count.
double StartOf(std::string_view reduce) {
  if (reduce == "prod") return 1;
  if (reduce == "amax") return -std::numeric_limits<double>::infinity();
  if (reduce == "amin") return std::numeric_limits<double>::infinity();
  return 0;
}

// A mean is a sum, divided by how many there were.
void ScatterReduce(Lowering& n) {
  const std::string_view reduce = n.Text("reduce", "");
  const bool mean = reduce == "mean";
  const char* reduction = reduce == "sum" || mean ? "add"
                          : reduce == "prod"      ? "mul"
                          : reduce == "amax"      ? "max"
                          : reduce == "amin"      ? "min"
                                                  : nullptr;
  const Operand x = n.Arg("self");
  const Operand index = n.Arg("index");
  const bool with_own = n.Flag("include_self", true);
  if (reduction == nullptr || (!IsFloat(x.dtype()) && (mean || !with_own))) {
    return n.Fail("scatter_reduce of this kind");
  }
  if (x.rank() == 0 || index.rank() != x.rank()) {
    return n.Fail("operand and index are of different rank");
  }
  Emitter& e = n.emit();
  const int64_t axis = n.Axis("dim", 0, x.rank());
  const auto scatter = [&](ValueId into, ValueId updates, const char* how) {
    return e.Op("ScatterElements", {into, index.id, updates},
                {{"axis", axis}, {"reduction", std::string(how)}});
  };
  const auto filled = [&](double value, ValueId like) {
    return e.Expand(e.Number(value, x.dtype()), e.Shape(like));
  };
  const ValueId updates = CutLike(n, n.Arg("src"), index, -1);
  const ValueId from =
      with_own ? x.id
               : scatter(x.id, filled(StartOf(reduce), index.id), "none");
  const ValueId made = scatter(from, updates, reduction);
  if (!mean) return n.Return(made);
  const ValueId ones = filled(1, index.id);
  ValueId counts = filled(1, x.id);
  if (!with_own) counts = scatter(counts, filled(0, index.id), "none");
  n.Return(e.Op("Div", {made, scatter(counts, ones, "add")}));
}

// Whole slices along an axis, by a list of places.
void IndexInto(Lowering& n, const char* reduction) {
  const Operand x = n.Arg("self");
  const Operand index = n.Arg("index");
  const Operand source = n.Arg("source");
  Emitter& e = n.emit();
  const int64_t axis = n.Axis("dim", 0, x.rank());
  if (index.rank() != 1 || source.rank() != x.rank()) {
    return n.Fail("a list of places is needed");
  }
  if (n.Real("alpha", 1) != 1) return n.Fail("alpha other than 1");
  std::vector<int64_t> others;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != axis) others.push_back(i);
  }
  const ValueId places =
      e.Expand(e.Unsqueeze(index.id, others), e.Shape(source.id));
  n.Return(e.Op("ScatterElements", {x.id, places, source.id},
                {{"axis", axis}, {"reduction", std::string(reduction)}}));
}
void IndexAdd(Lowering& n) { IndexInto(n, "add"); }
void IndexCopy(Lowering& n) { IndexInto(n, "none"); }

void NonZero(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  n.Return(e.Transpose(e.Op("NonZero", {x.id}), {1, 0}));
}

void MaskedSelect(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand mask = n.Arg("mask");
  Emitter& e = n.emit();
  if (x.rank() != mask.rank()) return n.Fail("a mask of another rank");
  const ValueId places = e.Transpose(e.Op("NonZero", {mask.id}), {1, 0});
  n.Return(e.Op("GatherND", {x.id, places}));
}

// How many boundaries lie below each value.
void Bucketize(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand bounds = n.Arg("boundaries");
  Emitter& e = n.emit();
  Promotion promotion;
  const DType type = promotion.Add(x).Add(bounds).Type();
  const ValueId values = e.Unsqueeze(e.Cast(x.id, x.dtype(), type), {x.rank()});
  const ValueId below = e.Op(n.Flag("right", false) ? "LessOrEqual" : "Less",
                             {e.Cast(bounds.id, bounds.dtype(), type), values});
  const ValueId count =
      e.Op("ReduceSum",
           {e.Cast(below, DType::kBool, DType::kI64), e.Ints({x.rank()})},
           {{"keepdims", int64_t{0}}});
  n.ReturnAs(DType::kI64, count);
}

void OneHot(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t classes = n.Int("num_classes", -1);
  if (classes < 1) return n.Fail("num_classes must be given");
  Emitter& e = n.emit();
  const ValueId all =
      e.Op("Range", {e.Integer(0, DType::kI64), e.Integer(classes, DType::kI64),
                     e.Integer(1, DType::kI64)});
  const ValueId hot = e.Op("Equal", {e.Unsqueeze(x.id, {x.rank()}), all});
  n.ReturnAs(DType::kBool, hot);
}

// How many values fall into each of `bins` equal parts of [min, max].
void Histc(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t bins = n.Int("bins", 100);
  const double min = n.Real("min", 0);
  const double max = n.Real("max", 0);
  if (min >= max || bins < 1 || !IsFloat(x.dtype())) {
    return n.Fail("a histogram whose bounds are those of the data");
  }
  Emitter& e = n.emit();
  const auto number = [&](double v) { return e.Number(v, x.dtype()); };
  const ValueId values = e.Reshape(x.id, {Num::Of(-1), Num::Of(1)});
  const ValueId scaled =
      e.Op("Div", {e.Op("Mul", {e.Op("Sub", {values, number(min)}),
                                number(static_cast<double>(bins))}),
                   number(max - min)});
  // The upper bound itself falls into the last part.
  const ValueId last = number(static_cast<double>(bins - 1));
  const ValueId within = e.Op("LessOrEqual", {values, number(max)});
  const ValueId place =
      e.Op("Where",
           {within, e.Op("Min", {e.Op("Floor", {scaled}), last}), number(-1)});
  const ValueId all =
      e.Op("Range", {number(0), number(static_cast<double>(bins)), number(1)});
  const ValueId hits =
      e.Cast(e.Op("Equal", {place, all}), DType::kBool, x.dtype());
  n.Return(e.Op("ReduceSum", {hits, e.Ints({0})}, {{"keepdims", int64_t{0}}}));
}

constexpr AtenOp kRows[] = {
    {"aten.index.Tensor", Index},
    {"aten._unsafe_index.Tensor", Index},
    {"aten.index_put.default", IndexPut},
    {"aten._unsafe_index_put.default", IndexPut},
    {"aten.index_select.default", IndexSelect},
    {"aten.embedding.default", Embedding},
    {"aten.embedding_bag.default", EmbeddingBag},
    {"aten.embedding_bag.padding_idx", EmbeddingBag},
    {"aten._embedding_bag.default", EmbeddingBag},
    {"aten._embedding_bag_forward_only.default", EmbeddingBag},
    {"quantized.embedding_bag_byte_rowwise_offsets.default", ByteEmbeddingBag},
    {"aten.gather.default", Gather},
    {"aten.scatter.src", Scatter},
    {"aten.scatter.value", Scatter},
    {"aten.scatter_add.default", ScatterAdd},
    {"aten.scatter.reduce", ScatterReducing},
    {"aten.scatter.value_reduce", ScatterReducing},
    {"aten.take.default", Take},
    {"aten.scatter_reduce.two", ScatterReduce},
    {"aten.index_add.default", IndexAdd},
    {"aten.index_copy.default", IndexCopy},
    {"aten.nonzero.default", NonZero},
    {"aten.masked_select.default", MaskedSelect},
    {"aten.bucketize.Tensor", Bucketize},
    {"aten.histc.default", Histc},
    {"aten.one_hot.default", OneHot},
};

}  // namespace

std::span<const AtenOp> IndexRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
