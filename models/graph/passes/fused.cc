#include "models/graph/passes/fused.h"

#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph::fused {

namespace {

// Bias and weights are shared; residual and gate have rows, as x has.
bool Layer(const RowView& node) { return node.OnlyRows({0, kResidual, kGate}); }

// Of a stack whose outermost axis is cut, or of rows by one matrix.
bool Product(const RowView& node) {
  const auto& params = ParamsOf<MatMulParams>(node.attrs());
  if (params.a_perm[0] != 0 || params.y_perm[0] != 0) return false;
  const Shape& a = node.shape(0);
  const Shape& b = node.shape(1);
  const bool b_straight = params.b_perm[0] == 0;
  if (!node.has_rows(1)) {
    const bool one = b.rank() == 2 || b.rank() < a.rank() ||
                     (b.rank() == a.rank() && b[0] == 1 && b_straight);
    return one && node.OnlyRows({0, kResidual, kGate});
  }
  return node.OnlyRows({0, 1, kResidual, kGate}) && a.rank() > 2 &&
         b.rank() == a.rank() && b_straight && a[0] == b[0];
}

bool AttentionRows(const RowView& node) {
  // Where axis 0 is that of tokens, attention mixes rows: not independent.
  const auto& params = ParamsOf<AttentionParams>(node.attrs());
  if (params.swapped || params.swapped_out) return false;
  constexpr size_t kMask = 3;
  const Shape& y = node.out();
  if (node.given(kMask) && !node.IsBroadcast(kMask, y)) {
    const Shape& mask = node.shape(kMask);
    // The same mask for each row, whose windows are its batch.
    const auto repeats = [&] {
      return !node.has_rows(kMask) && y[0] / node.batch() % mask[0] == 0;
    };
    if (mask.rank() != 4 || (!node.MayHaveRows(kMask, y[0]) && !repeats())) {
      return false;
    }
  }
  return node.has_rows(0) && node.has_rows(1) && node.has_rows(2);
}

constexpr OpFacts kLayer = {.keeps_rows = Layer};
constexpr OpFacts kOnlyFirst = {.keeps_rows = rows::OnlyFirst};
constexpr OpFacts kElements = {.keeps_rows = rows::ElementByElement};

}  // namespace

const OpDef kConv = {.name = "fused.Conv", .facts = kLayer};
const OpDef kVolumeConv = {.name = "fused.VolumeConv", .facts = kOnlyFirst};
const OpDef kConvTranspose = {.name = "fused.ConvTranspose", .facts = kLayer};
const OpDef kPool = {.name = "fused.Pool", .facts = kOnlyFirst};
const OpDef kGroupNorm = {.name = "fused.GroupNorm", .facts = kOnlyFirst};
const OpDef kResize = {.name = "fused.Resize", .facts = kOnlyFirst};
const OpDef kLinear = {.name = "fused.Linear", .facts = kLayer};
const OpDef kMatMul = {.name = "fused.MatMul",
                       .facts = {.keeps_rows = Product}};
const OpDef kAttention = {.name = "fused.Attention",
                          .facts = {.keeps_rows = AttentionRows}};
const OpDef kPointwise = {.name = "fused.Pointwise", .facts = kElements};
const OpDef kByteConv = {.name = "fused.ByteConv", .facts = kLayer};
const OpDef kByteConvTranspose = {.name = "fused.ByteConvTranspose",
                                  .facts = kLayer};
const OpDef kByteLinear = {.name = "fused.ByteLinear", .facts = kLayer};
const OpDef kBytePool = {.name = "fused.BytePool", .facts = kOnlyFirst};
const OpDef kLookup = {.name = "fused.Lookup", .facts = kOnlyFirst};
const OpDef kBytePointwise = {.name = "fused.BytePointwise",
                              .facts = kElements};

}  // namespace millrace::models::graph::fused
