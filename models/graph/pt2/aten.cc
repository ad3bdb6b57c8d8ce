#include "models/graph/pt2/aten.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>

namespace millrace::models::graph::pt2 {
namespace {

constexpr std::span<const AtenOp> (*kAtenGroups[])() = {
    BinaryRows,  CompareRows,  UnaryRows,   ViewRows,      PartRows,
    CreateRows,  ReduceRows,   MatMulRows,  ConvRows,      ImageRows,
    NormRows,    IndexRows,    ArrangeRows, RecurrentRows, SymbolRows,
    ComplexRows, ComposedRows, VisionRows,  SpecialRows,   PoolRows,
    FourierRows, WindowRows,   LossRows,    LinalgRows,    SearchRows,
    RareRows,
};

// Other names for the same, of any overload.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"absolute", "abs"},
    {"arccos", "acos"},
    {"arccosh", "acosh"},
    {"arcsin", "asin"},
    {"arcsinh", "asinh"},
    {"arctan", "atan"},
    {"arctan2", "atan2"},
    {"arctanh", "atanh"},
    {"clip", "clamp"},
    {"concatenate", "cat"},
    {"divide", "div"},
    {"fix", "trunc"},
    {"greater", "gt"},
    {"greater_equal", "ge"},
    {"ger", "outer"},
    {"less", "lt"},
    {"less_equal", "le"},
    {"moveaxis", "movedim"},
    {"multiply", "mul"},
    {"negative", "neg"},
    {"not_equal", "ne"},
    {"row_stack", "vstack"},
    {"special_erf", "erf"},
    {"special_digamma", "digamma"},
    {"special_erfc", "erfc"},
    {"special_erfinv", "erfinv"},
    {"special_gammaln", "lgamma"},
    {"special_multigammaln", "mvlgamma"},
    {"special_psi", "digamma"},
    {"special_log_softmax", "log_softmax"},
    {"special_logit", "logit"},
    {"special_sinc", "sinc"},
    {"special_xlogy", "xlogy"},
    {"special_exp2", "exp2"},
    {"special_expit", "sigmoid"},
    {"special_expm1", "expm1"},
    {"special_log1p", "log1p"},
    {"special_logsumexp", "logsumexp"},
    {"special_round", "round"},
    {"subtract", "sub"},
    {"true_divide", "div"},
    {"unsafe_split_with_sizes", "split_with_sizes"},
};

// "aten.multiply.Tensor" → "aten.mul.Tensor"; empty when it has one name only.
std::string CommonName(std::string_view target) {
  constexpr std::string_view kAten = "aten.";
  const size_t overload = target.rfind('.');
  if (!target.starts_with(kAten) || overload < kAten.size()) return "";
  const std::string_view name =
      target.substr(kAten.size(), overload - kAten.size());
  for (const auto& [other, common] : kOtherNames) {
    const bool in_place =
        name.size() == other.size() + 1 && name.ends_with('_');
    if (!name.starts_with(other) || (name != other && !in_place)) continue;
    return "aten." + std::string(common) + (in_place ? "_" : "") +
           std::string(target.substr(overload));
  }
  return "";
}

// Along axes they name, or with sizes that they keep: pairs of parts lie
// behind, and nothing changes for them.
constexpr std::string_view kSameForPairs[] = {
    "aten._assert_tensor_metadata.default",
    "aten.cat.default",
    "aten.chunk.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.flip.default",
    "aten.index_select.default",
    "aten.mean.dim",
    "aten.movedim.int",
    "aten.narrow.default",
    "aten.neg.default",
    "aten.roll.default",
    "aten.select.int",
    "aten.select_scatter.default",
    "aten.slice.Tensor",
    "aten.slice_scatter.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.stack.default",
    "aten.sum.dim_IntList",
    "aten.unbind.int",
    "aten.zeros_like.default",
};

}  // namespace

const AtenOp* FindAten(std::string_view target) {
  static const auto* const kByName = [] {
    auto* index = new std::unordered_map<std::string_view, const AtenOp*>();
    for (const auto group : kAtenGroups) {
      for (const AtenOp& op : group()) {
        CHECK(index->emplace(op.name, &op).second, "two rows of one name");
      }
    }
    return index;
  }();
  const auto found = kByName->find(target);
  if (found != kByName->end()) return found->second;
  const auto common = kByName->find(CommonName(target));
  return common != kByName->end() ? common->second : nullptr;
}

const AtenOp* FindComplexAten(const std::string& target) {
  if (const AtenOp* op = FindAten("complex." + target)) return op;
  const bool same =
      std::find(std::begin(kSameForPairs), std::end(kSameForPairs), target) !=
      std::end(kSameForPairs);
  return same ? FindAten(target) : nullptr;
}

}  // namespace millrace::models::graph::pt2
