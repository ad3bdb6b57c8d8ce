// If, Loop, Scan and SequenceMap, as the ONNX specification has them. What
// the bodies capture stands behind the formal operands.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/interpret/parts.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

using Values = std::vector<RuntimeValue>;

StatusOr<bool> BoolOf(const RuntimeValue& value, std::string_view what) {
  const Tensor& tensor = value.tensor;
  if (value.is_sequence || tensor.dtype() != DType::kBool ||
      tensor.num_elements() != 1) {
    return InvalidArgument(std::string(what) + " is not one BOOL");
  }
  return *tensor.data<bool>();
}

Values Shared(const Operands& operands, size_t begin, size_t end) {
  Values values;
  for (size_t i = begin; i < end; ++i) {
    values.push_back(operands[i] != nullptr ? operands[i]->Share()
                                            : RuntimeValue());
  }
  return values;
}

void Append(Values from, Values* to) {
  std::move(from.begin(), from.end(), std::back_inserter(*to));
}

Status Misfit() {
  return InvalidArgument("the body's inputs and outputs do not fit the node");
}

StatusOr<Tensor> Unsqueezed(const Tensor& tensor, int axis) {
  Shape shape = tensor.shape();
  if (axis > shape.rank() || shape.rank() == Shape::kMaxRank) {
    return InvalidArgument("axis " + std::to_string(axis) + " for " +
                           TypeText(tensor.dtype(), shape));
  }
  shape.Insert(axis, 1);
  return tensor.Reshaped(shape);
}

// What all trips made, along a new axis.
StatusOr<RuntimeValue> Stacked(const Values& trips, int64_t axis,
                               const Port& port,
                               const InterpretLimits& limits) {
  if (trips.empty()) return RuntimeValue(OfNoTrip(port));
  std::vector<Tensor> parts;
  std::vector<const Tensor*> pointers;
  ASSIGN_OR_RETURN(const int at,
                   NormalAxis(axis, trips[0].tensor.shape().rank() + 1));
  for (const RuntimeValue& trip : trips) {
    if (trip.is_sequence) return Misfit();
    ASSIGN_OR_RETURN(Tensor part, Unsqueezed(trip.tensor, at));
    parts.push_back(std::move(part));
  }
  for (const Tensor& part : parts) pointers.push_back(&part);
  ASSIGN_OR_RETURN(
      Tensor all,
      RunOp("Concat", pointers, {{"axis", AttrValue(int64_t{at})}}, limits));
  return RuntimeValue(std::move(all));
}

StatusOr<Values> RunIf(const Node& node, const Operands& operands,
                       const InterpretLimits& limits) {
  if (operands.empty() || operands[0] == nullptr || node.bodies.size() != 2) {
    return Misfit();
  }
  ASSIGN_OR_RETURN(const bool then, BoolOf(*operands[0], "the condition"));
  const Graph& body = *node.bodies[then ? 0 : 1];
  const Values inputs = Shared(operands, 1, operands.size());
  if (inputs.size() != body.inputs.size()) return Misfit();
  return InterpretValues(body, inputs, limits);
}

StatusOr<Values> RunLoop(const Node& node, const Operands& operands,
                         const InterpretLimits& limits) {
  const Graph& body = *node.bodies[0];
  const auto num_carried =
      static_cast<size_t>(node.attrs.Int("num_carried", 0));
  if (operands.size() < 2 + num_carried ||
      body.inputs.size() != operands.size() ||
      body.outputs.size() < 1 + num_carried) {
    return Misfit();
  }
  int64_t most = limits.max_loop_trips;
  bool bounded = false;
  if (operands[0] != nullptr) {
    const Tensor& trips = operands[0]->tensor;
    if (trips.dtype() != DType::kI64 || trips.num_elements() != 1) {
      return InvalidArgument("the trip count is not one INT64");
    }
    bounded = *trips.data<int64_t>() <= most;
    if (bounded) most = *trips.data<int64_t>();
  }
  bool goes_on = true;
  if (operands[1] != nullptr) {
    ASSIGN_OR_RETURN(goes_on, BoolOf(*operands[1], "the condition"));
  }
  Values carried = Shared(operands, 2, 2 + num_carried);
  std::vector<Values> scanned(body.outputs.size() - 1 - num_carried);
  int64_t trip = 0;
  for (; goes_on && trip < most; ++trip) {
    Values inputs;
    inputs.emplace_back(Tensor::Scalar(trip));
    Tensor yes = Tensor::Make(DType::kBool, {});
    *yes.data<bool>() = true;
    inputs.emplace_back(std::move(yes));
    Append(std::move(carried), &inputs);
    Append(Shared(operands, 2 + num_carried, operands.size()), &inputs);
    ASSIGN_OR_RETURN(Values results, InterpretValues(body, inputs, limits));
    ASSIGN_OR_RETURN(goes_on, BoolOf(results[0], "the body's condition"));
    carried.clear();
    for (size_t i = 0; i < num_carried; ++i) {
      carried.push_back(std::move(results[1 + i]));
    }
    for (size_t i = 0; i < scanned.size(); ++i) {
      scanned[i].push_back(std::move(results[1 + num_carried + i]));
    }
  }
  if (goes_on && !bounded) {
    return ResourceExhausted("the loop runs more than " + std::to_string(most) +
                             " times");
  }
  for (size_t i = 0; i < scanned.size(); ++i) {
    ASSIGN_OR_RETURN(
        RuntimeValue all,
        Stacked(scanned[i], 0, body.outputs[1 + num_carried + i], limits));
    carried.push_back(std::move(all));
  }
  return carried;
}

int64_t At(const std::vector<int64_t>& list, size_t i) {
  return i < list.size() ? list[i] : 0;
}

StatusOr<Values> RunScan(const Node& node, const Operands& operands,
                         const InterpretLimits& limits) {
  const Graph& body = *node.bodies[0];
  const auto num_carried =
      static_cast<size_t>(node.attrs.Int("num_carried", 0));
  const auto num_scanned =
      static_cast<size_t>(node.attrs.Int("num_scan_inputs", 1));
  const size_t formal = num_carried + num_scanned;
  if (operands.size() < formal || body.inputs.size() != operands.size() ||
      body.outputs.size() < num_carried ||
      std::count(operands.begin(), operands.begin() + static_cast<int>(formal),
                 nullptr) > 0) {
    return Misfit();
  }
  const auto& axes = node.attrs.Ints("scan_input_axes");
  const auto& backwards = node.attrs.Ints("scan_input_directions");
  int64_t num_trips = -1;
  std::vector<int> axis(num_scanned);
  for (size_t i = 0; i < num_scanned; ++i) {
    const Shape& shape = operands[num_carried + i]->tensor.shape();
    ASSIGN_OR_RETURN(axis[i], NormalAxis(At(axes, i), shape.rank()));
    if (num_trips >= 0 && shape[axis[i]] != num_trips) return Misfit();
    num_trips = shape[axis[i]];
  }
  if (num_trips > limits.max_loop_trips) {
    return ResourceExhausted("the scan runs " + std::to_string(num_trips) +
                             " times");
  }
  Values carried = Shared(operands, 0, num_carried);
  std::vector<Values> made(body.outputs.size() - num_carried);
  for (int64_t trip = 0; trip < num_trips; ++trip) {
    Values inputs = std::move(carried);
    for (size_t i = 0; i < num_scanned; ++i) {
      const Tensor at =
          Tensor::Scalar(At(backwards, i) != 0 ? num_trips - 1 - trip : trip);
      ASSIGN_OR_RETURN(
          Tensor slice,
          RunOp("Gather", {&operands[num_carried + i]->tensor, &at},
                {{"axis", AttrValue(int64_t{axis[i]})}}, limits));
      inputs.emplace_back(std::move(slice));
    }
    Append(Shared(operands, formal, operands.size()), &inputs);
    ASSIGN_OR_RETURN(Values results, InterpretValues(body, inputs, limits));
    carried.clear();
    for (size_t i = 0; i < results.size(); ++i) {
      (i < num_carried ? carried : made[i - num_carried])
          .push_back(std::move(results[i]));
    }
  }
  const auto& out_axes = node.attrs.Ints("scan_output_axes");
  const auto& out_backwards = node.attrs.Ints("scan_output_directions");
  for (size_t i = 0; i < made.size(); ++i) {
    if (At(out_backwards, i) != 0) std::reverse(made[i].begin(), made[i].end());
    ASSIGN_OR_RETURN(RuntimeValue all,
                     Stacked(made[i], At(out_axes, i),
                             body.outputs[num_carried + i], limits));
    carried.push_back(std::move(all));
  }
  return carried;
}

// The body runs on each item; further operands are sequences of the same
// length or tensors for all.
StatusOr<Values> RunSequenceMap(const Node& node, const Operands& operands,
                                const InterpretLimits& limits) {
  const Graph& body = *node.bodies[0];
  if (operands.empty() || body.inputs.size() != operands.size() ||
      std::count(operands.begin(), operands.end(), nullptr) > 0 ||
      !operands[0]->is_sequence) {
    return Misfit();
  }
  const size_t length = operands[0]->sequence.size();
  Values made(body.outputs.size());
  for (RuntimeValue& one : made) one.is_sequence = true;
  for (size_t trip = 0; trip < length; ++trip) {
    Values inputs;
    for (const RuntimeValue* operand : operands) {
      if (!operand->is_sequence) {
        inputs.push_back(operand->Share());
      } else if (operand->sequence.size() == length) {
        inputs.emplace_back(operand->sequence[trip].Share());
      } else {
        return Misfit();
      }
    }
    ASSIGN_OR_RETURN(Values results, InterpretValues(body, inputs, limits));
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].is_sequence) return Misfit();
      made[i].sequence.push_back(std::move(results[i].tensor));
    }
  }
  return made;
}

// Whoever asks for types before the graph runs learns that there are none.
StatusOr<std::vector<ValueType>> InferLater(const Call& call) {
  return NeedsBytes("what " + std::string(call.node.op->name) + " makes");
}
Status NeverRun(const Call&, std::span<const Result>, const Team&) {
  return Internal("the interpreter runs this by itself");
}

constexpr OpDef kOps[] = {
    {"If", InferLater, NeverRun},
    {"Loop", InferLater, NeverRun, Work::kWhole, {.stands_alone = true}},
    {"Scan", InferLater, NeverRun},
    {"SequenceMap", InferLater, NeverRun},
};

}  // namespace

std::span<const OpDef> ControlFlowOps() { return kOps; }

Tensor OfNoTrip(const Port& port) {
  Shape shape = {0};
  for (const PortDim& dim : port.dims) {
    if (shape.rank() < Shape::kMaxRank) {
      shape.Append(std::max<int64_t>(dim.size, 0));
    }
  }
  return Tensor::Make(port.dtype, shape);
}

bool IsControlFlow(const Node& node) { return !node.bodies.empty(); }

StatusOr<Values> RunControlFlow(const Node& node, const Operands& operands,
                                const InterpretLimits& limits) {
  if (node.Is("If")) return RunIf(node, operands, limits);
  if (node.Is("Loop")) return RunLoop(node, operands, limits);
  if (node.Is("Scan")) return RunScan(node, operands, limits);
  return RunSequenceMap(node, operands, limits);
}

}  // namespace millrace::models::graph
