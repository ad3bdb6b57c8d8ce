// The operators of ONNX Runtime's own domain that its optimiser writes into
// the files it saves, and those of its tools for transformers: written with
// ours. What they mean stands in ContribOperators.md of ONNX Runtime.
#include <algorithm>
#include <iterator>
#include <utility>

#include "models/graph/onnx/rewrite.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

Values Alone(ValueId value) { return std::vector<ValueId>{value}; }

Values Itself(NodeWriter& node) { return node.EmitSelf(); }

ValueId AddGiven(NodeWriter& node, ValueId x, ValueId y) {
  return y == kNoValue ? x : node.Emit("Add", {x, y});
}

Values Gelu(NodeWriter& node) {
  return Alone(node.Emit("Gelu", {AddGiven(node, node.in(0), node.in(1))}));
}

Values FastGelu(NodeWriter& node) {
  return Alone(node.Emit("Gelu", {AddGiven(node, node.in(0), node.in(1))},
                         {{"approximate", std::string("tanh")}}));
}

Values QuickGelu(NodeWriter& node) {
  return Alone(node.Emit("Swish", {node.in(0)},
                         {{"alpha", node.attrs.Float("alpha", 1.702)}}));
}

Values BiasAdd(NodeWriter& node) {
  const ValueId sum = node.Emit("Add", {node.in(0), node.in(1)});
  return Alone(AddGiven(node, sum, node.in(2)));
}

// Half of the columns times the GELU of the other half.
Values BiasSplitGelu(NodeWriter& node) {
  const ValueId sum = AddGiven(node, node.in(0), node.in(1));
  const auto halves =
      node.EmitAll("Split", {sum}, {true, true},
                   {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
  return Alone(node.Emit("Mul", {halves[0], node.Emit("Gelu", {halves[1]})}));
}

// An activation that has been joined to the layer before it, with its numbers
// under the names that they have there.
Values Activated(NodeWriter& node, ValueId x, Attrs numbers) {
  const std::string name(node.attrs.Text("activation", ""));
  if (name.empty()) return Alone(x);
  if (name == "Clip") {
    const auto bound = [&](const char* attr, double otherwise) {
      return node.FloatLike(static_cast<float>(numbers.Float(attr, otherwise)),
                            x);
    };
    return Alone(node.Emit(
        "Clip", {x, bound("min", -3.402823e38), bound("max", 3.402823e38)}));
  }
  for (const std::string_view known :
       {"Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu",
        "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu"}) {
    if (name == known) return Alone(node.Emit(name, {x}, std::move(numbers)));
  }
  return Unimplemented("its activation is '" + name + "'");
}

// The activation's numbers are a list, in the order of its attributes.
Values FusedConv(NodeWriter& node) {
  const bool clips = node.attrs.Text("activation", "") == "Clip";
  const std::vector<double>& list = node.attrs.Floats("activation_params");
  Attrs numbers;
  const char* const names[] = {clips ? "min" : "alpha", clips ? "max" : "beta"};
  for (size_t i = 0; i < std::min(list.size(), std::size(names)); ++i) {
    numbers.Set(names[i], list[i]);
  }
  Attrs attrs = node.attrs;
  for (const char* name : {"activation", "activation_params"}) {
    attrs.Erase(name);
  }
  std::vector<ValueId> operands = {node.in(0), node.in(1)};
  if (node.in(2) != kNoValue) operands.push_back(node.in(2));
  const ValueId y = node.Emit("Conv", std::move(operands), std::move(attrs));
  return Activated(node, AddGiven(node, y, node.in(3)), std::move(numbers));
}

// The activation's numbers are attributes of their own.
Values FusedGemm(NodeWriter& node) {
  Attrs numbers;
  Attrs attrs = node.attrs;
  attrs.Erase("activation");
  for (const std::string name : {"alpha", "beta", "gamma"}) {
    const std::string given = "activation_" + name;
    if (attrs.Has(given)) numbers.Set(name, attrs.Float(given, 0));
    attrs.Erase(given);
  }
  return Activated(node, node.Emit("Gemm", node.inputs, std::move(attrs)),
                   std::move(numbers));
}

// The operand of a product: its matrices turned, and (`batches`) the rows of
// all of them taken from the first axis instead of the last but one. A vector
// stays as it is.
ValueId Turned(NodeWriter& node, ValueId x, bool turn, bool batches) {
  if (!turn && !batches) return x;
  const int rank = node.rank_of(x);
  if (rank == 1 && !batches) return x;
  if (rank < 2) {  // not told by the file
    const std::string equation = !batches ? "...ij->...ji"
                                 : turn   ? "i...j->...ji"
                                          : "i...j->...ij";
    return node.Emit("Einsum", {x}, {{"equation", equation}});
  }
  std::vector<int64_t> perm;
  for (int64_t i = batches ? 1 : 0; i < rank - 2; ++i) perm.push_back(i);
  const int64_t rows = batches ? 0 : rank - 2;
  if (batches && rank > 2) perm.push_back(rank - 2);
  perm.push_back(turn ? rank - 1 : rows);
  perm.push_back(turn ? rows : rank - 1);
  return node.Emit("Transpose", {x}, {{"perm", std::move(perm)}});
}

Values FusedMatMul(NodeWriter& node) {
  const auto flag = [&](const char* name) {
    return node.attrs.Int(name, 0) != 0;
  };
  const ValueId a =
      Turned(node, node.in(0), flag("transA"), flag("transBatchA"));
  const ValueId b =
      Turned(node, node.in(1), flag("transB"), flag("transBatchB"));
  const ValueId product = node.Emit("MatMul", {a, b});
  const double alpha = node.attrs.Float("alpha", 1);
  if (alpha == 1) return Alone(product);
  return Alone(node.Emit(
      "Mul", {product, node.FloatLike(static_cast<float>(alpha), product)}));
}

// Norm of input + skip + bias; the sum is the fourth output.
Values SkipNormalization(NodeWriter& node, bool centred) {
  if (node.Wants(1) || node.Wants(2)) {
    return Unimplemented("its statistics are asked for");
  }
  ValueId sum = node.Emit("Add", {node.in(0), node.in(1)});
  sum = AddGiven(node, sum, node.in(centred ? 4 : 3));
  std::vector<ValueId> operands = {sum, node.in(2)};
  if (centred && node.in(3) != kNoValue) operands.push_back(node.in(3));
  const ValueId y = node.Emit(
      centred ? "LayerNormalization" : "RMSNormalization", std::move(operands),
      {{"epsilon", node.attrs.Float("epsilon", 1e-12)}});
  return std::vector<ValueId>{y, kNoValue, kNoValue, sum};
}

Values SkipLayerNormalization(NodeWriter& node) {
  return SkipNormalization(node, true);
}

Values SkipSimplifiedLayerNormalization(NodeWriter& node) {
  return SkipNormalization(node, false);
}

// 0, 1, … up to the size of `axis` of x.
ValueId Places(NodeWriter& node, ValueId x, int64_t axis) {
  const ValueId size =
      node.Emit("Gather", {node.Emit("Shape", {x}), node.Int(axis)});
  return node.Emit("Range", {node.Int(0), size, node.Int(1)});
}

// Words, places and segments, added and normalised; then how many of the
// words of each row the mask shows; then the sum. Tables of bytes have their
// scales from operand 8 on, and zero points behind those.
Values Embedded(NodeWriter& node, ValueId places, bool bytes) {
  const auto floats = [&](size_t table, ValueId x) {
    if (!bytes) return x;
    return node.Emit("DequantizeLinear",
                     {x, node.in(table + 6), node.in(table + 11)});
  };
  const auto rows = [&](size_t table, ValueId ids) {
    return floats(table, node.Emit("Gather", {node.in(table), ids}));
  };
  const ValueId ids = node.in(0);
  const ValueId mask = node.in(7);
  ValueId sum = node.Emit("Add", {rows(2, ids), rows(3, places)});
  if (node.in(1) != kNoValue && node.in(4) != kNoValue) {
    sum = node.Emit("Add", {sum, rows(4, node.in(1))});
  }
  const ValueId y = node.Emit(
      "LayerNormalization", {sum, floats(5, node.in(5)), floats(6, node.in(6))},
      {{"epsilon", node.attrs.Float("epsilon", 1e-12)}});
  ValueId shown = kNoValue;
  if (node.Wants(1)) {
    const ValueId words =
        mask != kNoValue
            ? mask
            : node.Emit("Mul",
                        {ids, node.Emit("CastLike", {node.Int(0), ids})});
    shown = node.Emit("ReduceSum", {words, node.Ints({1})},
                      {{"keepdims", int64_t{0}}});
    node.tell_rank(1, 1);
  }
  return std::vector<ValueId>{y, shown, sum};
}

Values EmbedLayerNormalization(NodeWriter& node) {
  const ValueId places =
      node.in(8) != kNoValue ? node.in(8) : Places(node, node.in(0), 1);
  return Embedded(node, places, false);
}

Values QEmbedLayerNormalization(NodeWriter& node) {
  return Embedded(node, Places(node, node.in(0), 1), true);
}

// Positions [batch, tokens] of all rows of x, whose first token is at `first`.
ValueId PositionsFrom(NodeWriter& node, ValueId x, ValueId first) {
  const ValueId shape = node.Emit("Shape", {x});
  const ValueId sizes = node.Emit("Gather", {shape, node.Ints({0, -2})});
  const ValueId row = node.Emit("Add", {Places(node, x, -2), first});
  return node.Emit("Expand", {row, sizes});
}

// Positions of [batch, tokens], or the first one of all rows. ONNX Runtime
// does not use `scale`.
Values RotaryEmbedding(NodeWriter& node) {
  if (node.in(1) == kNoValue) return InvalidArgument("it has no positions");
  ValueId at = node.in(1);
  if (node.rank_of(at) == 1) at = PositionsFrom(node, node.in(0), at);
  Attrs attrs = node.attrs;
  if (attrs.Int("is_packed_batching", 0) != 0) {
    return Unimplemented("its rows are packed");
  }
  for (const char* name : {"is_packed_batching", "scale"}) attrs.Erase(name);
  return Alone(node.Emit("RotaryEmbedding",
                         {node.in(0), node.in(2), node.in(3), at},
                         std::move(attrs)));
}

constexpr RewriteRow kRows[] = {
    {"BiasAdd", BiasAdd},
    {"BiasGelu", Gelu},
    {"BiasSplitGelu", BiasSplitGelu},
    {"DequantizeLinear", Itself},
    {"EmbedLayerNormalization", EmbedLayerNormalization},
    {"FastGelu", FastGelu},
    {"FusedConv", FusedConv},
    {"FusedGemm", FusedGemm},
    {"FusedMatMul", FusedMatMul},
    {"Gelu", Gelu},
    {"LayerNormalization", Itself},
    {"QEmbedLayerNormalization", QEmbedLayerNormalization},
    {"QuantizeLinear", Itself},
    {"QuickGelu", QuickGelu},
    {"RotaryEmbedding", RotaryEmbedding},
    {"SkipLayerNormalization", SkipLayerNormalization},
    {"SkipSimplifiedLayerNormalization", SkipSimplifiedLayerNormalization},
    {"TransposeMatMul", FusedMatMul},
};

}  // namespace

Rewrite FindMicrosoft(std::string_view op) {
  if (const Rewrite found = FindRow(kRows, op)) return found;
  if (const Rewrite found = FindMicrosoftAttention(op)) return found;
  if (const Rewrite found = FindMicrosoftBlocks(op)) return found;
  return FindMicrosoftBytes(op);
}

}  // namespace millrace::models::graph
