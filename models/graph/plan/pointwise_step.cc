// Fused elementwise operators: each instruction runs over a block of floats
// that stays in the L1 cache.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/ops/broadcast.h"
#include "models/graph/passes/program.h"
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

class PointwiseStep : public Step {
 public:
  PointwiseStep(const Node& node, const LowerContext& context)
      : dense_(context.dense),
        num_members_(context.num_members),
        program_(ProgramFrom(node.attrs)),
        walk_(WalkOf(node, context)),
        out_(context.slot(node.outputs[0])),
        text_("Pointwise " + context.shape(node.outputs[0]).ToString() + ", " +
              std::to_string(program_.size()) + " functions of " +
              std::to_string(node.inputs.size())) {
    for (const ValueId id : node.inputs) operands_.push_back(context.slot(id));
    AssignBuffers();
  }

  int64_t scratch_bytes() const override {
    return num_members_ * num_buffers_ * kBlock * 4;
  }

  Status Run(const Slots& slots, const Team& team) override {
    float* buffers = reinterpret_cast<float*>(slots.scratch) +
                     team.index * num_buffers_ * kBlock;
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

  void Block(const Slots& slots, const BroadcastRow& row, int64_t at, int64_t n,
             float* buffers) const {
    const auto source = [&](int32_t reg) -> Source {
      const auto i = static_cast<size_t>(reg);
      if (i < operands_.size()) {
        return {slots.data<float>(operands_[i]) + row.at[i] + at * row.step[i],
                row.step[i]};
      }
      return {buffers + buffer_of_[i - operands_.size()] * kBlock, 1};
    };
    for (size_t i = 0; i < program_.size(); ++i) {
      const Instruction& op = program_[i];
      float* out = i + 1 < program_.size()
                       ? buffers + buffer_of_[i] * kBlock
                       : slots.data<float>(out_) + row.out + at;
      const Source x = source(op.x);
      if (op.kind != Pointwise::kUnary) {
        const Source y = source(op.y);
        const auto f = static_cast<Binary>(static_cast<int>(op.kind) -
                                           static_cast<int>(Pointwise::kAdd));
        dense_.binary(f, x.x, x.step, y.x, y.step, n, out);
      } else if (x.step != 0) {
        dense_.unary(op.f, op.a, op.b, x.x, n, out);
      } else {
        float one;
        dense_.unary(op.f, op.a, op.b, x.x, 1, &one);
        std::fill_n(out, n, one);
      }
    }
  }

  // A buffer for each result but the last; one that is read no more is taken
  // again. An instruction may write over what it reads.
  void AssignBuffers() {
    std::vector<size_t> last_use(program_.size());
    const auto used = [&](int32_t reg, size_t by) {
      const auto i = static_cast<size_t>(reg);
      if (i >= operands_.size()) last_use[i - operands_.size()] = by;
    };
    for (size_t i = 0; i < program_.size(); ++i) {
      used(program_[i].x, i);
      if (program_[i].kind != Pointwise::kUnary) used(program_[i].y, i);
    }
    buffer_of_.assign(program_.size(), -1);
    std::vector<int64_t> free;
    for (size_t i = 0; i + 1 < program_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (last_use[j] == i) free.push_back(buffer_of_[j]);
      }
      if (free.empty()) free.push_back(num_buffers_++);
      buffer_of_[i] = free.back();
      free.pop_back();
    }
  }

  const DenseTable& dense_;
  const int64_t num_members_;
  const Program program_;
  const BroadcastWalk walk_;
  std::vector<Slot> operands_;
  const Slot out_;
  std::vector<int64_t> buffer_of_;  // of each instruction
  int64_t num_buffers_ = 0;
  const std::string text_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakePointwiseStep(const Node& node,
                                                  const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<PointwiseStep>(node, context));
}

}  // namespace millrace::models::graph
