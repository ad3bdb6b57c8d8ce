#include "models/graph/cuda/kept_formats.h"

#include <algorithm>
#include <string_view>

#include "models/graph/cuda/device_step.h"
#include "models/graph/passes/alias.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

using cuda::GraphFormat;

bool IsProgram(const Node& node) {
  return node.op == &fused::kPointwise || node.op == &fused::kBytePointwise;
}
template <size_t kCount>
bool IsOneOf(const Node& node, const std::string_view (&names)[kCount]) {
  return std::any_of(std::begin(names), std::end(names),
                     [&](std::string_view name) { return node.Is(name); });
}
// Results are values of operands.
bool Moves(const Node& node) {
  static constexpr std::string_view kMoves[] = {
      "Concat", "Expand", "Gather", "Slice", "Split", "Transpose"};
  return IsOneOf(node, kMoves);
}
bool AddsUp(const Node& node) {
  static constexpr std::string_view kSums[] = {"ReduceL2", "ReduceMean",
                                               "ReduceSum", "ReduceSumSquare"};
  return IsOneOf(node, kSums);
}

// Whether a small error of the operand may be a large one of the result.
bool NeedsAllBits(const Node& node, size_t operand) {
  if (node.op == &fused::kAttention) return operand == 3;
  if (!IsProgram(node)) return false;
  const Program& program = ParamsOf<PointwiseParams>(node.attrs).program;
  return std::any_of(program.begin(), program.end(), [](const Instruction& op) {
    return op.kind == Pointwise::kUnary &&
           (op.f == Unary::kSin || op.f == Unary::kCos ||
            op.f == Unary::kFloor || op.f == Unary::kCeil ||
            op.f == Unary::kRound);
  });
}

// Of a storage.
struct Use {
  const Node* maker = nullptr;
  bool may_be_narrow = false;
  bool needs_all_bits = false;
  int64_t narrow_reads = 0;
  int64_t other_reads = 0;

  bool IsNarrow() const {
    if (!may_be_narrow || needs_all_bits || narrow_reads == 0) return false;
    // Bytes of a value that are written and read, the copy in f32 too.
    const int64_t copy = other_reads > 0 ? 2 + 4 + 4 * other_reads : 0;
    const int64_t narrow = 2 * (1 + narrow_reads) + copy;
    return narrow <= 4 * (1 + narrow_reads + other_reads);
  }
};

class Uses {
 public:
  explicit Uses(const KeptFormatsOf& of) : of_(of), uses_(of.num_slots) {
    for (size_t i = 0; i < of.graph.nodes.size(); ++i) Count(i);
    for (size_t i = of.graph.nodes.size(); i-- > 0;) PassBack(i);
    for (const auto* ports : {&of.graph.inputs, &of.graph.outputs}) {
      for (const Port& port : *ports) At(port.value).may_be_narrow = false;
    }
  }
  bool IsNarrow(size_t slot) const { return uses_[slot].IsNarrow(); }

 private:
  Use& At(ValueId id) {
    return uses_[static_cast<size_t>(of_.slot_of[static_cast<size_t>(id)])];
  }

  void Count(size_t i) {
    const Node& node = of_.graph.nodes[i];
    if (IsAlias(node, of_.graph)) return;
    const NarrowUse narrow = of_.on_device[i] ? NarrowUseOf(node) : NarrowUse();
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] == kNoValue) continue;
      Use& use = At(node.inputs[k]);
      ++(narrow.Reads(k) ? use.narrow_reads : use.other_reads);
    }
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      Use& use = At(id);
      use.maker = &node;
      use.may_be_narrow = narrow.writes && of_.graph.value(id).type &&
                          of_.graph.value(id).type->dtype == DType::kF32;
    }
  }

  void PassBack(size_t i) {
    const Node& node = of_.graph.nodes[i];
    const bool passes = !of_.on_device[i] || IsProgram(node) || Moves(node);
    const bool needed =
        passes &&
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
          return id != kNoValue && At(id).needs_all_bits;
        });
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] == kNoValue) continue;
      Use& use = At(node.inputs[k]);
      const bool is_sum_of_program =
          AddsUp(node) && use.maker != nullptr && IsProgram(*use.maker);
      if (needed || NeedsAllBits(node, k)) use.needs_all_bits = true;
      if (is_sum_of_program) use.may_be_narrow = false;
    }
  }

  const KeptFormatsOf& of_;
  std::vector<Use> uses_;
};

}  // namespace

GraphFormat NarrowFormatOf(cuda::GraphPrecision precision) {
  switch (precision) {
    case cuda::GraphPrecision::kF32:
    case cuda::GraphPrecision::kTf32:
      break;
    case cuda::GraphPrecision::kF16:
      return GraphFormat::kF16;
    case cuda::GraphPrecision::kBf16:
      return GraphFormat::kBf16;
  }
  return GraphFormat::kF32;
}

bool IsNarrow(GraphFormat format) {
  return format == GraphFormat::kF16 || format == GraphFormat::kBf16;
}

std::string FormatName(GraphFormat format) {
  switch (format) {
    case GraphFormat::kF32:
      break;
    case GraphFormat::kF16:
      return "f16";
    case GraphFormat::kBf16:
      return "bf16";
    case GraphFormat::kU8:
      return "u8";
  }
  return "f32";
}

std::vector<GraphFormat> KeptFormats(const KeptFormatsOf& of) {
  std::vector<GraphFormat> formats(of.num_slots, GraphFormat::kF32);
  for (size_t i = 0; i < of.slot_of.size(); ++i) {
    const auto& type = of.graph.values[i].type;
    if (of.slot_of[i] == kNoSlot || !type) continue;
    if (type->dtype == DType::kU8) {
      formats[static_cast<size_t>(of.slot_of[i])] = GraphFormat::kU8;
    }
  }
  const GraphFormat narrow = NarrowFormatOf(of.precision);
  if (!IsNarrow(narrow)) return formats;
  const Uses uses(of);
  for (size_t slot = 0; slot < of.num_slots; ++slot) {
    if (uses.IsNarrow(slot)) formats[slot] = narrow;
  }
  return formats;
}

}  // namespace millrace::models::graph
