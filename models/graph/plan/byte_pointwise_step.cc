// Fused elementwise operators that read and write bytes: a block of each
// operand in bytes becomes floats that stay in the L1 cache, and so does the
// result before it becomes bytes.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/ops/broadcast.h"
#include "models/graph/passes/program.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kBlock = 1024;

BroadcastWalk WalkOf(const Node& node, const LowerContext& context) {
  const Shape& out = context.shape(node.outputs[0]);
  std::vector<Shape> strides;
  for (const ValueId id : node.inputs) {
    strides.push_back(BroadcastStrides(context.shape(id), out));
  }
  return BroadcastWalk::WithStrides(out, strides);
}

class BytePointwiseStep : public Step {
 public:
  BytePointwiseStep(const Node& node, const LowerContext& context)
      : dense_(context.dense),
        int8_(context.int8),
        num_members_(context.num_members),
        program_(ProgramFrom(node.attrs)),
        walk_(WalkOf(node, context)),
        out_(context.slot(node.outputs[0])),
        text_("Int8 Pointwise " + context.shape(node.outputs[0]).ToString() +
              ", " + std::to_string(program_.size()) + " functions of " +
              std::to_string(node.inputs.size())) {
    const std::vector<double>& scales = node.attrs.Floats("scales");
    const std::vector<int64_t>& zeros = node.attrs.Ints("zeros");
    for (size_t i = 0; i < scales.size(); ++i) {
      scales_.push_back(
          {static_cast<float>(scales[i]), static_cast<int32_t>(zeros[i])});
    }
    for (const ValueId id : node.inputs) operands_.push_back(context.slot(id));
  }

  int64_t scratch_bytes() const override {
    return num_members_ * MemberFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) override {
    float* buffers =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberFloats();
    const int64_t length = walk_.row_length();
    const int64_t blocks = (length + kBlock - 1) / kBlock;
    const auto [begin, end] = team.Share(walk_.num_rows() * blocks);
    for (int64_t at = begin; at < end;) {
      const int64_t row = at / blocks;
      const int64_t last = std::min(end - row * blocks, blocks);
      walk_.ForRows(row, row + 1, [&](const BroadcastRow& r) {
        for (int64_t b = at - row * blocks; b < last; ++b) {
          Block(slots, r, b * kBlock, std::min(kBlock, length - b * kBlock),
                buffers);
        }
      });
      at = row * blocks + last;
    }
    return OkStatus();
  }

  std::string Text() const override { return text_; }

 private:
  // Where the values of a register are, and whether it repeats one.
  struct Source {
    const float* x;
    int64_t step;
  };

  // A buffer for each operand and each instruction.
  int64_t MemberFloats() const {
    return static_cast<int64_t>(operands_.size() + program_.size()) * kBlock;
  }

  void Block(const Slots& slots, const BroadcastRow& row, int64_t at, int64_t n,
             float* buffers) const {
    std::vector<Source> sources(operands_.size());
    for (size_t i = 0; i < operands_.size(); ++i) {
      const int64_t from = row.at[i] + at * row.step[i];
      const ByteScale& scale = scales_[i];
      sources[i] = {slots.data<float>(operands_[i]) + from, row.step[i]};
      if (scale.scale == 0) continue;
      float* floats = buffers + static_cast<int64_t>(i) * kBlock;
      int8_.dequantise(slots.data<uint8_t>(operands_[i]) + from,
                       row.step[i] == 0 ? 1 : n, scale.scale, scale.zero,
                       floats);
      sources[i].x = floats;
    }
    const auto source = [&](int32_t reg) -> Source {
      const auto i = static_cast<size_t>(reg);
      if (i < operands_.size()) return sources[i];
      return {buffers + static_cast<int64_t>(i) * kBlock, 1};
    };
    const ByteScale& y = scales_.back();
    for (size_t i = 0; i < program_.size(); ++i) {
      const Instruction& op = program_[i];
      float* out =
          buffers + static_cast<int64_t>(operands_.size() + i) * kBlock;
      if (i + 1 == program_.size() && y.scale == 0) {
        out = slots.data<float>(out_) + row.out + at;
      }
      const Source a = source(op.x);
      if (op.kind != Pointwise::kUnary) {
        const Source b = source(op.y);
        const auto f = static_cast<Binary>(static_cast<int>(op.kind) -
                                           static_cast<int>(Pointwise::kAdd));
        dense_.binary(f, a.x, a.step, b.x, b.step, n, out);
      } else if (a.step != 0) {
        dense_.unary(op.f, op.a, op.b, a.x, n, out);
      } else {
        float one;
        dense_.unary(op.f, op.a, op.b, a.x, 1, &one);
        std::fill_n(out, n, one);
      }
    }
    if (y.scale == 0) return;
    const Source result =
        source(static_cast<int32_t>(operands_.size() + program_.size() - 1));
    int8_.quantise(result.x, n, 1.0f / y.scale, y.zero,
                   slots.data<uint8_t>(out_) + row.out + at);
  }

  const DenseTable& dense_;
  const Int8Table& int8_;
  const int64_t num_members_;
  const Program program_;
  const BroadcastWalk walk_;
  std::vector<Slot> operands_;
  std::vector<ByteScale> scales_;  // of the operands, then of the result
  const Slot out_;
  const std::string text_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeBytePointwiseStep(
    const Node& node, const LowerContext& context) {
  return std::unique_ptr<Step>(
      std::make_unique<BytePointwiseStep>(node, context));
}

}  // namespace millrace::models::graph
