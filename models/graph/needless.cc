#include "models/graph/needless.h"

#include <algorithm>

namespace millrace::models::graph {
namespace {

bool IsStraightTranspose(const Node& node) {
  const std::vector<int64_t>& perm = node.attrs.Ints("perm");
  return !perm.empty() && std::is_sorted(perm.begin(), perm.end());
}

// Of a slice as large as its operand: not a flip.
bool StepsForward(const Call& call) {
  if (!call.arg(4).given) return true;
  const auto steps = IntsOf(call.arg(4), "steps");
  return steps.ok() && std::all_of(steps->begin(), steps->end(),
                                   [](int64_t step) { return step > 0; });
}

}  // namespace

bool IsNeedless(const Call& call, const std::vector<ValueType>& types) {
  const Node& node = call.node;
  if (types.size() != 1 || !call.arg(0).given ||
      types[0] != ValueType{call.arg(0).dtype, call.arg(0).shape}) {
    return false;
  }
  if (node.op->facts.reshapes || node.Is("Expand") || node.Is("Cast")) {
    return true;
  }
  if (node.Is("Transpose")) return IsStraightTranspose(node);
  if (node.Is("Slice")) return StepsForward(call);
  return node.Is("Concat") && node.inputs.size() == 1;
}

}  // namespace millrace::models::graph
