#include "models/graph/fold_sequences.h"

#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

FoldedSequences::Results One(ValueId id) { return std::vector<ValueId>{id}; }

// How many of the operands cannot be left out.
size_t NumNeeded(const Node& node, size_t num_operands) {
  if (node.Is("SequenceEmpty")) return 0;
  if (node.Is("SequenceConstruct")) return num_operands;
  if (node.Is("SequenceInsert")) return 2;
  return 1;
}

bool LacksOperands(const Node& node, const std::vector<ValueId>& operands) {
  const size_t needed = NumNeeded(node, operands.size());
  return operands.size() < needed ||
         std::count(operands.begin(),
                    operands.begin() + static_cast<int64_t>(needed),
                    kNoValue) > 0;
}

// Where parts of a dimension of this size end, from their lengths.
StatusOr<std::vector<int64_t>> Ends(const Node& node,
                                    std::vector<int64_t> lengths,
                                    int64_t size) {
  int64_t before = 0;
  for (int64_t& end : lengths) {
    if (end < 0 || end > size - before) {
      return InvalidArgument("node '" + node.name +
                             "': parts of more than the " +
                             std::to_string(size) + " there are");
    }
    before = end += before;
  }
  return lengths;
}

std::vector<int64_t> EndsOfChunks(int64_t size, int64_t chunk) {
  std::vector<int64_t> ends;
  for (int64_t at = 0; at < size;) {
    at += std::min(chunk, size - at);
    ends.push_back(at);
  }
  return ends;
}

}  // namespace

FoldedSequences::FoldedSequences(Graph* made, Make make)
    : made_(*made), make_(std::move(make)) {}

void FoldedSequences::Forget(ValueId first) {
  std::erase_if(items_, [&](const auto& item) { return item.first >= first; });
}

bool FoldedSequences::Any(const std::vector<ValueId>& values) const {
  return std::any_of(values.begin(), values.end(),
                     [&](ValueId id) { return items_.contains(id); });
}

StatusOr<FoldedSequences::Results> FoldedSequences::Fold(
    const Node& node, const std::vector<ValueId>& operands) {
  // What is left out is an error of the interpreter.
  if (LacksOperands(node, operands)) return Results();
  if (node.Is("SequenceEmpty")) return Made(node, {});
  if (node.Is("SequenceConstruct")) return Made(node, operands);
  if (node.Is("SplitToSequence")) return Parts(node, operands);
  const auto found = items_.find(operands[0]);
  if (found == items_.end()) return Results();
  if (node.Is("SequenceLength")) {
    const auto size = static_cast<int64_t>(found->second.size());
    return One(made_.AddConstant(node.name, Tensor::Scalar(size)));
  }
  if (node.Is("ConcatFromSequence")) return Joined(node, found->second);
  return Edited(node, operands, found->second);
}

const Tensor* FoldedSequences::Constant(ValueId id) const {
  return made_.value(id).constant.get();
}

// The number that operand i holds, `otherwise` when it is not given; none
// when it is not known.
std::optional<int64_t> FoldedSequences::NumberAt(
    const std::vector<ValueId>& operands, size_t i, int64_t otherwise) const {
  if (i >= operands.size() || operands[i] == kNoValue) return otherwise;
  const Tensor* number = Constant(operands[i]);
  if (number == nullptr || number->num_elements() != 1) return std::nullopt;
  if (number->dtype() == DType::kI32) return *number->data<int32_t>();
  if (number->dtype() == DType::kI64) return *number->data<int64_t>();
  return std::nullopt;
}

ValueId FoldedSequences::List(std::string_view name, int64_t only) {
  return made_.AddConstant(std::string(name),
                           Tensor::Int64s(std::vector<int64_t>{only}));
}

FoldedSequences::Results FoldedSequences::Made(const Node& node,
                                               std::vector<ValueId> items) {
  const ValueId id = made_.AddValue(node.name);
  items_[id] = std::move(items);
  return One(id);
}

// SequenceAt, SequenceInsert, SequenceErase.
StatusOr<FoldedSequences::Results> FoldedSequences::Edited(
    const Node& node, const std::vector<ValueId>& operands,
    std::vector<ValueId> items) {
  const auto size = static_cast<int64_t>(items.size());
  const bool inserts = node.Is("SequenceInsert");
  auto place = NumberAt(operands, inserts ? 2 : 1, inserts ? size : size - 1);
  if (!place) return Results();
  if (*place < 0) *place += size;
  if (*place < 0 || *place >= size + (inserts ? 1 : 0)) {
    return InvalidArgument("node '" + node.name +
                           "': the position is outside of a sequence of " +
                           std::to_string(size));
  }
  if (node.Is("SequenceAt")) return One(items[static_cast<size_t>(*place)]);
  if (inserts) {
    items.insert(items.begin() + *place, operands[1]);
  } else {
    items.erase(items.begin() + *place);
  }
  return Made(node, std::move(items));
}

StatusOr<FoldedSequences::Results> FoldedSequences::Joined(
    const Node& node, std::vector<ValueId> items) {
  if (items.empty()) return InvalidArgument("the sequence is empty");
  const int64_t axis = node.attrs.Int("axis", 0);
  if (node.attrs.Int("new_axis", 0) != 0) {
    const ValueId at = List("axis", axis);
    for (ValueId& item : items) {
      ASSIGN_OR_RETURN(item, make_(node, "Unsqueeze", {item, at}, {}));
    }
  }
  ASSIGN_OR_RETURN(const ValueId id,
                   make_(node, "Concat", std::move(items), {{"axis", axis}}));
  return One(id);
}

StatusOr<FoldedSequences::Results> FoldedSequences::Parts(
    const Node& node, const std::vector<ValueId>& operands) {
  const std::optional<ValueType> type = made_.value(operands[0]).type;
  const bool even = operands.size() < 2 || operands[1] == kNoValue;
  const Tensor* given = even ? nullptr : Constant(operands[1]);
  if (!type || (!even && given == nullptr)) return Results();
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(node.attrs.Int("axis", 0), type->shape.rank()));
  const int64_t size = type->shape[axis];
  std::vector<int64_t> ends;
  if (even || given->shape().rank() == 0) {
    const std::optional<int64_t> chunk = NumberAt(operands, 1, 1);
    if (!chunk || *chunk <= 0) return Results();
    ends = EndsOfChunks(size, *chunk);
  } else {
    const Arg arg{true, given->dtype(), given->shape(), given->bytes()};
    ASSIGN_OR_RETURN(std::vector<int64_t> lengths, IntsOf(arg, "split"));
    ASSIGN_OR_RETURN(ends, Ends(node, std::move(lengths), size));
  }
  const ValueId along = List("axis", axis);
  const bool drops_axis = even && node.attrs.Int("keepdims", 1) == 0;
  std::vector<ValueId> items;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    ASSIGN_OR_RETURN(ValueId item, make_(node, "Slice",
                                         {operands[0], List("begin", begin),
                                          List("end", end), along},
                                         {}));
    if (drops_axis) {
      ASSIGN_OR_RETURN(item, make_(node, "Squeeze", {item, along}, {}));
    }
    items.push_back(item);
    begin = end;
  }
  return Made(node, std::move(items));
}

}  // namespace millrace::models::graph
