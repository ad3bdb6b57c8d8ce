// Operators that take or make a sequence of tensors.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "models/graph/interpret/parts.h"
#include "models/graph/onnx_dtype.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

using Values = std::vector<RuntimeValue>;

StatusOr<const RuntimeValue*> SequenceAt(const Operands& operands, size_t i) {
  if (i < operands.size() && operands[i] != nullptr &&
      operands[i]->is_sequence) {
    return operands[i];
  }
  return InvalidArgument("operand " + std::to_string(i) + " is no sequence");
}

StatusOr<const Tensor*> TensorAt(const Operands& operands, size_t i) {
  if (i < operands.size() && operands[i] != nullptr &&
      !operands[i]->is_sequence) {
    return &operands[i]->tensor;
  }
  return InvalidArgument("operand " + std::to_string(i) + " is no tensor");
}

bool IsGiven(const Operands& operands, size_t i) {
  return i < operands.size() && operands[i] != nullptr;
}

// A place in a sequence, counted from the end when negative.
StatusOr<size_t> PlaceOf(const Operands& operands, size_t i, size_t count) {
  ASSIGN_OR_RETURN(const Tensor* tensor, TensorAt(operands, i));
  const Arg arg{true, tensor->dtype(), tensor->shape(), tensor->bytes()};
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, IntsOf(arg, "position"));
  const auto size = static_cast<int64_t>(count);
  if (values.size() != 1 || values[0] < -size || values[0] >= size) {
    return InvalidArgument("the position is outside of a sequence of " +
                           std::to_string(size));
  }
  return static_cast<size_t>(values[0] < 0 ? values[0] + size : values[0]);
}

Values One(RuntimeValue value) {
  Values values;
  values.push_back(std::move(value));
  return values;
}

StatusOr<Values> Empty(const Node&, const Operands&, const InterpretLimits&) {
  return One(RuntimeValue::Sequence({}));
}

StatusOr<Values> Construct(const Node&, const Operands& operands,
                           const InterpretLimits&) {
  std::vector<Tensor> items;
  for (size_t i = 0; i < operands.size(); ++i) {
    ASSIGN_OR_RETURN(const Tensor* item, TensorAt(operands, i));
    items.push_back(item->Share());
  }
  return One(RuntimeValue::Sequence(std::move(items)));
}

StatusOr<Values> Length(const Node&, const Operands& operands,
                        const InterpretLimits&) {
  ASSIGN_OR_RETURN(const RuntimeValue* of, SequenceAt(operands, 0));
  return One(
      RuntimeValue(Tensor::Scalar(static_cast<int64_t>(of->sequence.size()))));
}

StatusOr<Values> ItemAt(const Node&, const Operands& operands,
                        const InterpretLimits&) {
  ASSIGN_OR_RETURN(const RuntimeValue* of, SequenceAt(operands, 0));
  ASSIGN_OR_RETURN(const size_t at, PlaceOf(operands, 1, of->sequence.size()));
  return One(RuntimeValue(of->sequence[at].Share()));
}

StatusOr<Values> Insert(const Node&, const Operands& operands,
                        const InterpretLimits&) {
  ASSIGN_OR_RETURN(const RuntimeValue* of, SequenceAt(operands, 0));
  ASSIGN_OR_RETURN(const Tensor* item, TensorAt(operands, 1));
  RuntimeValue made = of->Share();
  size_t at = made.sequence.size();
  if (IsGiven(operands, 2)) {
    // The end is a place, too.
    ASSIGN_OR_RETURN(at, PlaceOf(operands, 2, at + 1));
    const Tensor& place = operands[2]->tensor;
    const int64_t given = place.dtype() == DType::kI64 ? *place.data<int64_t>()
                                                       : *place.data<int32_t>();
    if (given < 0 && at > 0) --at;
  }
  made.sequence.insert(made.sequence.begin() + static_cast<int64_t>(at),
                       item->Share());
  return One(std::move(made));
}

StatusOr<Values> Erase(const Node&, const Operands& operands,
                       const InterpretLimits&) {
  ASSIGN_OR_RETURN(const RuntimeValue* of, SequenceAt(operands, 0));
  if (of->sequence.empty()) return InvalidArgument("the sequence is empty");
  size_t at = of->sequence.size() - 1;
  if (IsGiven(operands, 1)) {
    ASSIGN_OR_RETURN(at, PlaceOf(operands, 1, of->sequence.size()));
  }
  RuntimeValue made = of->Share();
  made.sequence.erase(made.sequence.begin() + static_cast<int64_t>(at));
  return One(std::move(made));
}

StatusOr<Values> ConcatAll(const Node& node, const Operands& operands,
                           const InterpretLimits& limits) {
  ASSIGN_OR_RETURN(const RuntimeValue* of, SequenceAt(operands, 0));
  if (of->sequence.empty()) return InvalidArgument("the sequence is empty");
  int64_t axis = node.attrs.Int("axis", 0);
  std::vector<Tensor> items;
  std::vector<const Tensor*> pointers;
  const bool is_new = node.attrs.Int("new_axis", 0) != 0;
  for (const Tensor& item : of->sequence) {
    if (!is_new) {
      items.push_back(item.Share());
      continue;
    }
    Shape shape = item.shape();
    if (shape.rank() == Shape::kMaxRank) {
      return InvalidArgument("a tensor has 8 dimensions at most");
    }
    ASSIGN_OR_RETURN(const int at, NormalAxis(axis, shape.rank() + 1));
    shape.Insert(at, 1);
    items.push_back(item.Reshaped(shape));
  }
  for (const Tensor& item : items) pointers.push_back(&item);
  ASSIGN_OR_RETURN(Tensor all, RunOp("Concat", pointers,
                                     {{"axis", AttrValue(axis)}}, limits));
  return One(RuntimeValue(std::move(all)));
}

StatusOr<Values> Split(const Node& node, const Operands& operands,
                       const InterpretLimits& limits) {
  ASSIGN_OR_RETURN(const Tensor* x, TensorAt(operands, 0));
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(node.attrs.Int("axis", 0), x->shape().rank()));
  const int64_t size = x->shape()[axis];
  std::vector<int64_t> sizes;
  bool squeezes = false;
  if (IsGiven(operands, 1)) {
    ASSIGN_OR_RETURN(const Tensor* split, TensorAt(operands, 1));
    const Arg arg{true, split->dtype(), split->shape(), split->bytes()};
    ASSIGN_OR_RETURN(sizes, IntsOf(arg, "split"));
    if (split->shape().rank() == 0) {
      const int64_t chunk = sizes[0];
      if (chunk <= 0) return InvalidArgument("a chunk has 1 row or more");
      sizes.clear();
      for (int64_t at = 0; at < size; at += chunk) {
        sizes.push_back(std::min(chunk, size - at));
      }
    }
  } else {
    sizes.assign(static_cast<size_t>(size), 1);
    squeezes = node.attrs.Int("keepdims", 1) == 0;
  }
  std::vector<Tensor> items;
  const Tensor axes = Tensor::Int64s(std::vector<int64_t>{axis});
  int64_t at = 0;
  for (const int64_t part : sizes) {
    if (part < 0 || part > size - at) {
      return InvalidArgument("the parts are larger than the tensor");
    }
    const Tensor begin = Tensor::Int64s(std::vector<int64_t>{at});
    at += part;
    const Tensor end = Tensor::Int64s(std::vector<int64_t>{at});
    ASSIGN_OR_RETURN(Tensor item,
                     RunOp("Slice", {x, &begin, &end, &axes}, {}, limits));
    if (squeezes) {
      Shape shape = item.shape();
      shape.Erase(axis);
      item = item.Reshaped(shape);
    }
    items.push_back(std::move(item));
  }
  return One(RuntimeValue::Sequence(std::move(items)));
}

struct Row {
  std::string_view name;
  StatusOr<Values> (*run)(const Node&, const Operands&, const InterpretLimits&);
};
constexpr Row kRows[] = {
    {"ConcatFromSequence", ConcatAll}, {"SequenceAt", ItemAt},
    {"SequenceConstruct", Construct},  {"SequenceEmpty", Empty},
    {"SequenceErase", Erase},          {"SequenceInsert", Insert},
    {"SequenceLength", Length},        {"SplitToSequence", Split},
};

const Row* FindRow(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& r) { return r.name == name; });
  return row != std::end(kRows) ? row : nullptr;
}

StatusOr<std::vector<ValueType>> InferLater(const Call& call) {
  return NeedsBytes("what " + std::string(call.node.op->name) + " makes");
}
Status NeverRun(const Call&, std::span<const Result>, const Team&) {
  return Internal("the interpreter runs this by itself");
}

constexpr OpDef kOps[] = {
    {"ConcatFromSequence", InferLater, NeverRun},
    {"SequenceAt", InferLater, NeverRun},
    {"SequenceConstruct", InferLater, NeverRun},
    {"SequenceEmpty",
     InferLater,
     NeverRun,
     Work::kWhole,
     {.stands_alone = true}},
    {"SequenceErase", InferLater, NeverRun},
    {"SequenceInsert", InferLater, NeverRun},
    {"SequenceLength", InferLater, NeverRun},
    {"SplitToSequence", InferLater, NeverRun},
};

}  // namespace

std::span<const OpDef> SequenceOps() { return kOps; }

bool IsOnSequences(const Node& node) {
  return FindRow(node.op->name) != nullptr;
}

StatusOr<Values> RunOnSequences(const Node& node, const Operands& operands,
                                const InterpretLimits& limits) {
  return FindRow(node.op->name)->run(node, operands, limits);
}

}  // namespace millrace::models::graph
