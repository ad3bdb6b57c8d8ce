// Attention as ONNX Runtime's tools for transformers write it, in the form of
// ONNX.
#include <utility>

#include "models/graph/onnx/byte_product.h"
#include "models/graph/onnx/rewrite.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

const std::vector<int64_t> kHeadsInside = {0, 2, 1, 3};

// What the places of the operands say of one attention.
struct Parts {
  ValueId q = kNoValue, k = kNoValue, v = kNoValue;
  ValueId mask = kNoValue;
  ValueId bias = kNoValue;
  ValueId past_k = kNoValue, past_v = kNoValue;
};

// How many rows x has, [batch, rows, columns] or [batch, heads, rows, columns].
ValueId Rows(NodeWriter& node, ValueId x) {
  return node.Emit("Gather", {node.Emit("Shape", {x}), node.Int(-2)});
}

// Which keys are seen, by how many of each row are: [batch, keys].
ValueId SeenUpTo(NodeWriter& node, ValueId lengths, const Parts& parts) {
  ValueId keys = Rows(node, parts.k);
  if (parts.past_k != kNoValue) {
    keys = node.Emit("Add", {keys, Rows(node, parts.past_k)});
  }
  const ValueId places = node.Emit("Range", {node.Int(0), keys, node.Int(1)});
  const ValueId ends = node.Emit("Unsqueeze", {lengths, node.Ints({1})});
  return node.Emit("Less", {places, node.Emit("CastLike", {ends, places})});
}

// The mask of keys (1: seen) as numbers that are added to scores, of a rank
// that goes with [batch, heads, queries, keys]. Hidden keys get a finite
// number, so that a row that sees none of them sees them all.
StatusOr<ValueId> MaskBias(NodeWriter& node, const Parts& parts) {
  const int rank = node.rank_of(parts.mask);
  if (rank < 1 || rank > 3) {
    return Unimplemented(
        "its mask is not of [batch], [batch, keys] or [batch, queries, keys]");
  }
  ValueId seen = kNoValue;
  if (rank == 1) {
    seen = SeenUpTo(node, parts.mask, parts);
  } else {
    const ValueId zero = node.Emit("CastLike", {node.Int(0), parts.mask});
    seen = node.Emit("Greater", {parts.mask, zero});
  }
  const auto hidden =
      static_cast<float>(node.attrs.Float("mask_filter_value", -10000));
  const ValueId bias = node.Emit("Where", {seen, node.FloatLike(0, parts.q),
                                           node.FloatLike(hidden, parts.q)});
  return node.Emit("Unsqueeze",
                   {bias, rank == 3 ? node.Ints({1}) : node.Ints({1, 2})});
}

// [batch, tokens, heads * size] as [batch, heads, tokens, size], which keys and
// values may be already.
ValueId WithHeads(NodeWriter& node, ValueId x, int64_t heads) {
  if (node.rank_of(x) == 4) return x;
  const ValueId apart = node.Emit("Reshape", {x, node.Ints({0, 0, heads, -1})});
  return node.Emit("Transpose", {apart}, {{"perm", kHeadsInside}});
}

// The result, and (`present`) keys and values with those of the past.
Values Attend(NodeWriter& node, const Parts& parts, bool present) {
  const int64_t heads = node.attrs.Int("num_heads", 0);
  if (heads < 1) {
    return InvalidArgument("num_heads is " + std::to_string(heads));
  }
  Attrs attrs;
  if (node.attrs.Int("unidirectional", 0) != 0) {
    attrs.Set("is_causal", int64_t{1});
  }
  if (const double scale = node.attrs.Float("scale", 0); scale != 0) {
    attrs.Set("scale", scale);
  }
  ValueId bias = parts.bias;
  if (parts.mask != kNoValue) {
    ASSIGN_OR_RETURN(const ValueId mask, MaskBias(node, parts));
    bias = bias == kNoValue ? mask : node.Emit("Add", {bias, mask});
  }
  std::vector<ValueId> operands = {WithHeads(node, parts.q, heads),
                                   WithHeads(node, parts.k, heads),
                                   WithHeads(node, parts.v, heads),
                                   bias,
                                   parts.past_k,
                                   parts.past_v};
  while (!operands.empty() && operands.back() == kNoValue) operands.pop_back();
  auto made =
      node.EmitAll("Attention", std::move(operands),
                   std::vector<bool>(present ? 3 : 1, true), std::move(attrs));
  const ValueId rows =
      node.Emit("Transpose", {made[0]}, {{"perm", kHeadsInside}});
  made[0] = node.Emit("Reshape", {rows, node.Ints({0, 0, -1})});
  return made;
}

// Operators that have weights have one cache of keys and values, too.
Values AttendWithCache(NodeWriter& node, ValueId x, ValueId mask, ValueId past,
                       ValueId bias) {
  for (const char* name : {"do_rotary", "past_present_share_buffer"}) {
    if (node.attrs.Int(name, 0) != 0) {
      return Unimplemented("it has '" + std::string(name) + "'");
    }
  }
  Attrs split = {{"axis", int64_t{-1}}};
  std::vector<ValueId> operands = {x};
  if (node.attrs.Has("qkv_hidden_sizes")) {
    operands.push_back(node.Ints(node.attrs.Ints("qkv_hidden_sizes")));
  } else {
    split.Set("num_outputs", int64_t{3});
  }
  const auto qkv = node.EmitAll("Split", std::move(operands),
                                {true, true, true}, std::move(split));
  Parts parts{qkv[0], qkv[1], qkv[2], mask, bias};
  if (past != kNoValue) {
    const Attrs first = {{"axis", int64_t{0}}};
    parts.past_k = node.Emit("Gather", {past, node.Int(0)}, first);
    parts.past_v = node.Emit("Gather", {past, node.Int(1)}, first);
  }
  const bool present = node.Wants(1);
  ASSIGN_OR_RETURN(std::vector<ValueId> made, Attend(node, parts, present));
  if (!present) return made;
  std::vector<ValueId> both;
  for (const size_t i : {size_t{1}, size_t{2}}) {
    both.push_back(node.Emit("Unsqueeze", {made[i], node.Ints({0})}));
  }
  return std::vector<ValueId>{
      made[0], node.Emit("Concat", std::move(both), {{"axis", int64_t{0}}})};
}

// Operands: x, weights and bias of q, k and v side by side, mask, past, bias
// of scores.
Values Attention(NodeWriter& node) {
  ValueId x = node.Emit("MatMul", {node.in(0), node.in(1)});
  if (node.in(2) != kNoValue) x = node.Emit("Add", {x, node.in(2)});
  return AttendWithCache(node, x, node.in(3), node.in(4), node.in(5));
}

// Operands: x, weights, bias, scales of x and of weights, mask, zero points of
// both, past.
Values QAttention(NodeWriter& node) {
  const ValueId x =
      ByteProduct(node, {node.in(0), node.in(3), node.in(6)},
                  {node.in(1), node.in(4), node.in(7)}, node.in(2));
  return AttendWithCache(node, x, node.in(5), node.in(8), kNoValue);
}

// x [batch, tokens, heads, count, size] as `count` of [batch, tokens, heads *
// size].
std::vector<ValueId> Unpacked(NodeWriter& node, ValueId x, size_t count) {
  const ValueId ones = node.Ints(std::vector<int64_t>(count, 1));
  auto parts = node.EmitAll("Split", {x, ones}, std::vector<bool>(count, true),
                            {{"axis", int64_t{3}}});
  for (ValueId& part : parts) {
    part = node.Emit("Reshape", {part, node.Ints({0, 0, -1})});
  }
  return parts;
}

// Keys and values stand on their own, with the queries, or with each other.
Status UnpackParts(NodeWriter& node, Parts* parts) {
  if (parts->k != kNoValue && parts->v != kNoValue) return OkStatus();
  const bool all = parts->k == kNoValue;
  const ValueId packed = all ? parts->q : parts->k;
  const int rank = node.rank_of(packed);
  if (parts->v != kNoValue || (rank != 5 && rank != -1)) {
    return Unimplemented(all ? "its queries are not [batch, tokens, heads, 3, "
                               "size], and there are no keys"
                             : "its keys are not [batch, tokens, heads, 2, "
                               "size], and there are no values");
  }
  const auto unpacked = Unpacked(node, packed, all ? 3 : 2);
  if (all) parts->q = unpacked[0];
  parts->k = unpacked[unpacked.size() - 2];
  parts->v = unpacked.back();
  return OkStatus();
}

// One list: biases of queries, of keys and of values, as wide as those are.
// Keys and values that have heads come with theirs.
void AddBiases(NodeWriter& node, ValueId biases, bool has_heads, Parts* parts) {
  const auto width = [&](ValueId x) {
    return node.Emit("Shape", {x}, {{"start", int64_t{-1}}});
  };
  const auto add = [&](ValueId bias, ValueId* x) {
    *x = node.Emit("Add", {*x, bias});
  };
  const ValueId q_width = width(parts->q);
  const Attrs first = {{"axis", int64_t{0}}};
  if (has_heads) {
    add(node.Emit("Slice", {biases, node.Ints({0}), q_width}), &parts->q);
    return;
  }
  const ValueId widths =
      node.Emit("Concat", {q_width, width(parts->k), width(parts->v)}, first);
  const auto each =
      node.EmitAll("Split", {biases, widths}, {true, true, true}, first);
  add(each[0], &parts->q);
  add(each[1], &parts->k);
  add(each[2], &parts->v);
}

// Operands: q, k, v, one list of biases of all three, mask, bias of scores,
// past keys and values.
Values MultiHeadAttention(NodeWriter& node) {
  if (node.in(8) != kNoValue || node.in(9) != kNoValue || node.Wants(3)) {
    return Unimplemented("it has places in a shared cache, or shows scores");
  }
  Parts parts{node.in(0), node.in(1), node.in(2), node.in(4),
              node.in(5), node.in(6), node.in(7)};
  RETURN_IF_ERROR(UnpackParts(node, &parts));
  if (node.in(3) != kNoValue) {
    AddBiases(node, node.in(3), node.rank_of(parts.k) == 4, &parts);
  }
  return Attend(node, parts, node.Wants(1) || node.Wants(2));
}

constexpr RewriteRow kRows[] = {
    {"Attention", Attention},
    {"MultiHeadAttention", MultiHeadAttention},
    {"QAttention", QAttention},
};

}  // namespace

Rewrite FindMicrosoftAttention(std::string_view op) {
  return FindRow(kRows, op);
}

}  // namespace millrace::models::graph
