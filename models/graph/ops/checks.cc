#include "models/graph/ops/checks.h"

#include <algorithm>

namespace millrace::models::graph {

Status CheckOperands(const Call& call, size_t needed, size_t most) {
  if (call.args.size() > most) {
    return InvalidArgument("there are " + std::to_string(call.args.size()) +
                           " operands, at most " + std::to_string(most) +
                           " are taken");
  }
  for (size_t i = 0; i < needed; ++i) {
    if (!call.arg(i).given) {
      return InvalidArgument("operand " + std::to_string(i) + " is missing");
    }
  }
  return OkStatus();
}

Status CheckSameType(const Arg& a, const Arg& b) {
  if (a.dtype == b.dtype) return OkStatus();
  return InvalidArgument("operands are " + TypeText(a.dtype, a.shape) +
                         " and " + TypeText(b.dtype, b.shape) +
                         ": they must be of one type");
}

Status WrongType(const Arg& arg) {
  return InvalidArgument(TypeText(arg.dtype, arg.shape) +
                         " is not what this operator takes");
}

StatusOr<int64_t> IntOf(const Arg& arg, std::string_view what,
                        int64_t otherwise) {
  if (!arg.given) return otherwise;
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, IntsOf(arg, what));
  if (values.size() != 1) {
    return InvalidArgument(std::string(what) + " has " +
                           std::to_string(values.size()) +
                           " elements instead of one");
  }
  return values[0];
}

StatusOr<std::vector<int>> AxesOf(const std::vector<int64_t>& axes, int rank) {
  std::vector<int> normal;
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const int at, NormalAxis(axis, rank));
    normal.push_back(at);
  }
  std::sort(normal.begin(), normal.end());
  if (std::adjacent_find(normal.begin(), normal.end()) != normal.end()) {
    return InvalidArgument("an axis is named twice");
  }
  return normal;
}

}  // namespace millrace::models::graph
