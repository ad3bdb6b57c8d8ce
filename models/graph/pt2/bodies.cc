#include "models/graph/pt2/bodies.h"

#include <memory>
#include <utility>

namespace millrace::models::graph::pt2 {
namespace {

bool IsName(const Argument& argument) {
  return argument.kind == Argument::Kind::kScalar &&
         argument.scalars[0].kind == Scalar::Kind::kName;
}

// The value that a body calls `formal`; kNoValue where it needs none, since the
// export has fixed it.
ValueId OperandOf(const Argument& formal, const Argument& actual, Names& names,
                  Emitter& emit) {
  if (formal.kind == Argument::Kind::kTensor &&
      actual.kind == Argument::Kind::kTensor) {
    return names.Tensor(actual.tensors[0]).id;
  }
  if (formal.kind != Argument::Kind::kTensor && !IsName(formal)) {
    return kNoValue;
  }
  if (formal.kind == Argument::Kind::kTensor ||
      actual.kind != Argument::Kind::kScalar) {
    emit.Fail(
        InvalidArgument("an operand is of another kind than its body "
                        "takes"));
    return kNoValue;
  }
  const Num number = IsName(actual) ? names.Number(actual.scalars[0].name)
                                    : Num::Of(actual.scalars[0].integer);
  if (actual.scalars[0].kind == Scalar::Kind::kFloat ||
      number.dtype != DType::kI64) {
    emit.Fail(Unimplemented("an operand is a number that is no integer"));
    return kNoValue;
  }
  return emit.Value(number, DType::kI64);
}

StatusOr<ValueId> Condition(const Argument& condition, Names& names,
                            Emitter& emit) {
  if (condition.kind == Argument::Kind::kTensor) {
    return names.Tensor(condition.tensors[0]).id;
  }
  if (condition.kind != Argument::Kind::kScalar) {
    return InvalidArgument("its condition is no BOOL");
  }
  return emit.Value(IsName(condition)
                        ? names.Number(condition.scalars[0].name)
                        : Num::Truth(condition.scalars[0].integer != 0),
                    DType::kBool);
}

}  // namespace

StatusOr<std::vector<ValueId>> LowerBodies(const NodeSpec& node, Names& names,
                                           Emitter& emit,
                                           const ImportBody& import) {
  const bool is_if = node.target == "higher_order.cond";
  const bool is_loop = node.target == "higher_order.while_loop";
  const size_t first = is_if || is_loop ? 1 : 0;  // the condition
  std::vector<std::shared_ptr<const Graph>> bodies;
  for (const auto& program : node.bodies) {
    if (program->inputs.size() + first != node.inputs.size()) {
      return InvalidArgument("it has another number of operands than its body");
    }
    ASSIGN_OR_RETURN(Graph body, import(*program, is_loop));
    bodies.push_back(std::make_shared<const Graph>(std::move(body)));
  }
  std::vector<ValueId> operands;
  if (is_loop) operands.push_back(kNoValue);  // any number of trips
  if (first == 1) {
    ASSIGN_OR_RETURN(operands.emplace_back(),
                     Condition(node.inputs[0].second, names, emit));
  }
  for (size_t i = first; i < node.inputs.size(); ++i) {
    const ValueId operand =
        OperandOf(node.bodies[0]->inputs[i - first].argument,
                  node.inputs[i].second, names, emit);
    if (operand != kNoValue) {
      operands.push_back(operand);
    } else if (i - first < node.num_carried + node.num_scanned) {
      emit.Fail(Unimplemented("a value of its trips is no tensor"));
    }
  }
  RETURN_IF_ERROR(emit.TakeStatus());
  for (const auto& body : bodies) {
    if (body->inputs.size() != operands.size() - (is_if ? 1 : 0) ||
        body->outputs.size() != node.outputs.size() + (is_loop ? 1 : 0) ||
        body->outputs.size() < node.num_carried) {
      return InvalidArgument("its body has other inputs or results than it");
    }
  }
  Attrs attrs;
  attrs.Set("num_carried", static_cast<int64_t>(node.num_carried));
  if (node.num_scanned > 0) {
    attrs.Set("num_scan_inputs", static_cast<int64_t>(node.num_scanned));
  }
  std::vector<ValueId> results =
      emit.Ops(is_if     ? "If"
               : is_loop ? "Loop"
                         : "Scan",
               std::move(operands), std::move(attrs), node.outputs.size());
  RETURN_IF_ERROR(emit.TakeStatus());
  emit.graph().nodes.back().bodies = std::move(bodies);
  return results;
}

}  // namespace millrace::models::graph::pt2
