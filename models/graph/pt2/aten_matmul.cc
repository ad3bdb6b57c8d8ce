// Products of matrices, and attention.
#include <algorithm>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// y = x·wᵀ + bias. A weight of another rank than 2 is rare and multiplied as it
// comes.
void Linear(Lowering& n) {
  const Operand weight = n.Arg("weight");
  Emitter& e = n.emit();
  if (weight.rank() == 2) {
    std::vector<ValueId> operands = {n.In("input"), weight.id};
    if (n.Has("bias")) operands.push_back(n.In("bias"));
    return n.Return(e.Op("Linear", std::move(operands)));
  }
  ValueId y = e.Op("MatMul", {n.In("input"), weight.id});
  if (n.Has("bias")) y = e.Op("Add", {y, n.In("bias")});
  n.Return(y);
}

// What was transposed to make `x`, when x is a transposed matrix.
ValueId Untransposed(Lowering& n, ValueId x) {
  const Node* maker = n.emit().MakerOf(x);
  if (maker == nullptr || !maker->Is("Transpose")) return kNoValue;
  const std::vector<int64_t>& order = maker->attrs.Ints("perm");
  return order == std::vector<int64_t>{1, 0} ? maker->inputs[0] : kNoValue;
}

ValueId Scaled(Lowering& n, ValueId x, DType type, std::string_view name) {
  const Num factor = n.Number(name, Num::Of(1));
  if (factor.known() && factor.AsReal() == 1) return x;
  return n.emit().Op("Mul", {x, n.emit().Value(factor, type)});
}

// beta·self + alpha·(a·b). After decompositions a linear layer looks so, its
// weight transposed: that is undone.
void AddMm(Lowering& n) {
  const Operand bias = n.Arg("self");
  const ValueId a = n.In("mat1");
  const ValueId b = n.In("mat2");
  Emitter& e = n.emit();
  const ValueId weight = Untransposed(n, b);
  const bool plain = n.Real("alpha", 1) == 1 && n.Real("beta", 1) == 1;
  if (plain && weight != kNoValue && bias.rank() == 1 &&
      bias.meta->sizes[0].hint != 1) {
    return n.Return(e.Op("Linear", {a, weight, bias.id}));
  }
  const ValueId product =
      Scaled(n, e.Op("MatMul", {a, b}), bias.dtype(), "alpha");
  n.Return(e.Op("Add", {product, Scaled(n, bias.id, bias.dtype(), "beta")}));
}

void Mm(Lowering& n) {
  const ValueId a = n.In("self");
  const ValueId b = n.In("mat2");
  const ValueId weight = Untransposed(n, b);
  n.Return(weight != kNoValue ? n.emit().Op("Linear", {a, weight})
                              : n.emit().Op("MatMul", {a, b}));
}

void MatMul(Lowering& n) {
  const char* other = n.Has("mat2")     ? "mat2"
                      : n.Has("vec")    ? "vec"
                      : n.Has("tensor") ? "tensor"
                                        : "other";
  n.Return(n.emit().Op("MatMul", {n.In("self"), n.In(other)}));
}

void BAddBmm(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId product = Scaled(
      n, e.Op("MatMul", {n.In("batch1"), n.In("batch2")}), x.dtype(), "alpha");
  if (n.Real("beta", 1) == 0) return n.Return(product);
  n.Return(e.Op("Add", {product, Scaled(n, x.id, x.dtype(), "beta")}));
}

void Outer(Lowering& n) {
  Emitter& e = n.emit();
  n.Return(e.Op("Mul", {e.Unsqueeze(n.In("self"), {1}), n.In("vec2")}));
}

void Einsum(Lowering& n) {
  std::vector<ValueId> operands;
  for (const Operand& x : n.Args("tensors")) operands.push_back(x.id);
  n.Return(n.emit().Op("Einsum", std::move(operands),
                       {{"equation", std::string(n.Text("equation", ""))}}));
}

// Queries, keys and values of any rank from 2 on as [batch, heads, rows,
// width]: what attention is defined on.
ValueId AsHeads(Lowering& n, const Operand& x) {
  Emitter& e = n.emit();
  if (x.rank() == 4) return x.id;
  if (x.rank() == 3) return e.Unsqueeze(x.id, {1});
  if (x.rank() == 2) return e.Unsqueeze(x.id, {0, 1});
  Num batch = Num::Of(1);
  for (int64_t i = 0; i < x.rank() - 3; ++i) {
    batch = e.Mul(batch, n.Size(x, i));
  }
  return e.Reshape(x.id, {batch, n.Size(x, x.rank() - 3),
                          n.Size(x, x.rank() - 2), n.Size(x, x.rank() - 1)});
}

ValueId MaskForHeads(Lowering& n, const Operand& query, const Operand& mask) {
  if (!mask) return kNoValue;
  if (query.rank() == 3 && mask.rank() == 3) {
    return n.emit().Unsqueeze(mask.id, {1});
  }
  if (mask.rank() > 4) {
    n.Fail("attention with a mask of rank " + std::to_string(mask.rank()));
  }
  return mask.id;
}

ValueId Attention(Lowering& n, bool is_causal) {
  const Operand query = n.Arg("query");
  const Operand key = n.Arg("key");
  const Operand value = n.Arg("value");
  Emitter& e = n.emit();
  if (n.Real("dropout_p", 0) != 0) n.Fail("attention with dropout");
  if (query.rank() < 2 || key.rank() != query.rank() ||
      value.rank() != query.rank()) {
    n.Fail("attention over operands of different ranks");
    return kNoValue;
  }
  Attrs attrs = {{"is_causal", int64_t{is_causal ? 1 : 0}}};
  if (n.Has("scale")) attrs.Set("scale", n.Real("scale", 1));
  const Operand mask = n.ArgOrNone("attn_mask");
  std::vector<ValueId> operands = {AsHeads(n, query), AsHeads(n, key),
                                   AsHeads(n, value)};
  if (mask) operands.push_back(MaskForHeads(n, query, mask));
  const ValueId y = e.Op("Attention", std::move(operands), std::move(attrs));
  if (query.rank() == 4) return y;
  if (query.rank() == 3) return e.Squeeze(y, {1});
  if (query.rank() == 2) return e.Squeeze(y, {0, 1});
  std::vector<Num> sizes;
  for (int64_t i = 0; i < query.rank() - 1; ++i) {
    sizes.push_back(n.Size(query, i));
  }
  sizes.push_back(n.Size(value, value.rank() - 1));
  return e.Reshape(y, sizes);
}

// Also the forms that name a kernel: result 0 is the same.
void ScaledDotProductAttention(Lowering& n) {
  n.Return(Attention(n, n.Flag("is_causal", false)));
}

// Experts: rows sorted by the matrix they are multiplied with.
void GroupedMatMul(Lowering& n, const Operand& x, const Operand& w,
                   const Operand& ends) {
  if (x.rank() != 2 || w.rank() != 3 || ends.rank() != 1) {
    return n.Fail("groups of other ranks than rows [s, k], matrices [g, k, n]");
  }
  n.Return(n.emit().Op("GroupedMatMul", {x.id, w.id, ends.id}));
}
void GroupedMm(Lowering& n) {
  if (n.ArgOrNone("bias") || !n.Has("offs")) return n.Fail("this form of it");
  GroupedMatMul(n, n.Arg("self"), n.Arg("mat2"), n.Arg("offs"));
}
// What transformers exports where PyTorch has no kernel of it.
void GroupedMmFallback(Lowering& n) {
  GroupedMatMul(n, n.Arg("input"), n.Arg("weight"), n.Arg("offs"));
}

constexpr AtenOp kRows[] = {
    {"aten.linear.default", Linear},
    {"aten.addmm.default", AddMm},
    {"aten.mm.default", Mm},
    {"aten.matmul.default", MatMul},
    {"aten.bmm.default", MatMul},
    {"aten.mv.default", MatMul},
    {"aten.dot.default", MatMul},
    {"aten.baddbmm.default", BAddBmm},
    {"aten.outer.default", Outer},
    {"aten.einsum.default", Einsum},
    {"aten.scaled_dot_product_attention.default", ScaledDotProductAttention},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default",
     ScaledDotProductAttention},
    {"aten._scaled_dot_product_attention_math.default",
     ScaledDotProductAttention},
    {"aten._grouped_mm.default", GroupedMm},
    {"transformers.grouped_mm_fallback.default", GroupedMmFallback},
};

}  // namespace

std::span<const AtenOp> MatMulRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
