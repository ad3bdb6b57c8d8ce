#include "models/graph/ops/operands.h"

namespace millrace::models::graph {

Types Outputs(const Call& call, std::vector<ValueType> types) {
  if (call.num_outputs() > types.size()) {
    return InvalidArgument("the node has " +
                           std::to_string(call.num_outputs()) +
                           " outputs, the operator makes " +
                           std::to_string(types.size()) + " at the most");
  }
  types.resize(call.num_outputs());
  return types;
}

Status CountOperands(const Call& call, size_t least, size_t most) {
  for (size_t i = 0; i < least; ++i) {
    if (!call.arg(i).given) {
      return InvalidArgument("operand " + std::to_string(i + 1) +
                             " is missing; " + std::to_string(least) +
                             " are needed");
    }
  }
  if (call.args.size() > most) {
    return InvalidArgument("the node has " + std::to_string(call.args.size()) +
                           " operands, the operator takes " +
                           std::to_string(most) + " at the most");
  }
  return OkStatus();
}

Status FloatOperand(const Call& call, size_t i, std::string_view what) {
  const Arg& arg = call.arg(i);
  if (!arg.given || IsFloat(arg.dtype)) return OkStatus();
  return InvalidArgument(std::string(what) + " is " +
                         TypeText(arg.dtype, arg.shape) +
                         "; the operator takes floats");
}

Status SameType(const Call& call, size_t i, std::string_view what) {
  const Arg& arg = call.arg(i);
  if (!arg.given || arg.dtype == call.arg(0).dtype) return OkStatus();
  return InvalidArgument(std::string(what) + " is " +
                         TypeText(arg.dtype, arg.shape) +
                         "; its element type must be that of the first "
                         "operand, " +
                         std::string(DTypeName(call.arg(0).dtype)));
}

Status ShapeIs(const Call& call, size_t i, const Shape& shape,
               std::string_view what) {
  const Arg& arg = call.arg(i);
  if (!arg.given || arg.shape == shape) return OkStatus();
  return InvalidArgument(std::string(what) + " has shape " +
                         arg.shape.ToString() +
                         ", but the other operands ask "
                         "for " +
                         shape.ToString());
}

Status RankAtLeast(const Arg& arg, int rank, std::string_view what) {
  if (arg.shape.rank() >= rank) return OkStatus();
  return InvalidArgument(std::string(what) + " has shape " +
                         arg.shape.ToString() + "; " + std::to_string(rank) +
                         " dimensions are needed at least");
}

Status OneFloat(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 1));
  return FloatOperand(call, 0, "the operand");
}

}  // namespace millrace::models::graph
