// Fused elementwise operators: each instruction runs over a block of floats
// that stays in the L1 cache. What is in bytes becomes floats there, too, and
// so does a result before it becomes bytes or bf16.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "models/graph/fused_params.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kBlock = 1024;

bool LiesApart(ValueId id, const LowerContext& context) {
  const Shape& shape = context.shape(id);
  return shape.rank() > 0 && context.distance(id) != shape.back();
}

// Of the operands, then of a result whose rows lie apart.
BroadcastWalk WalkOf(const Node& node, const LowerContext& context) {
  const Shape& out = context.shape(node.outputs[0]);
  std::vector<ValueId> walked = node.inputs;
  if (LiesApart(node.outputs[0], context)) walked.push_back(node.outputs[0]);
  std::vector<Shape> strides;
  for (const ValueId id : walked) {
    Shape of = BroadcastStrides(context.shape(id), out);
    for (int i = 0; i + 1 < of.rank() && LiesApart(id, context); ++i) {
      of[i] = of[i] / context.shape(id).back() * context.distance(id);
    }
    strides.push_back(of);
  }
  return BroadcastWalk::WithStrides(out, strides);
}

// Scales of the operands, then of the result; 0 for what is in floats.
std::vector<ByteScale> ScalesOf(const Node& node) {
  std::vector<ByteScale> scales = ParamsOf<PointwiseParams>(node.attrs).scales;
  scales.resize(node.inputs.size() + 1);
  return scales;
}

class PointwiseStep : public Step {
 public:
  PointwiseStep(const Node& node, const LowerContext& context)
      : dense_(context.dense),
        int8_(context.int8),
        num_members_(context.num_members),
        program_(ParamsOf<PointwiseParams>(node.attrs).program),
        walk_(WalkOf(node, context)),
        scales_(ScalesOf(node)),
        out_(context.slot(node.outputs[0])),
        out_apart_(LiesApart(node.outputs[0], context)),
        round_(context.rounding(node.outputs[0])),
        text_(context.shape(node.outputs[0]).ToString() + ", " +
              std::to_string(program_.size()) + " functions of " +
              std::to_string(node.inputs.size())) {
    for (const ValueId id : node.inputs) {
      operands_.push_back(context.slot(id));
      ahead_.push_back(LiesApart(id, context) ? AheadOf(id, context) : 0);
    }
    AssignBuffers();
  }

  int64_t scratch_bytes() const override {
    return num_members_ * num_buffers_ * kBlock * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    float* buffers = reinterpret_cast<float*>(slots.scratch) +
                     team.index * num_buffers_ * kBlock;
    const int64_t length = walk_.row_length();
    const int64_t blocks = (length + kBlock - 1) / kBlock;
    const auto [begin, end] = team.Share(walk_.num_rows() * blocks);
    ForEachItem(begin, end, blocks, [&](int64_t row, int64_t a, int64_t b) {
      walk_.ForRows(row, row + 1, [&](const BroadcastRow& r) {
        for (int64_t at = a * kBlock; at < std::min(b * kBlock, length);
             at += kBlock) {
          Block(slots, r, at, std::min(kBlock, length - at), buffers);
        }
      });
    });
    return OkStatus();
  }

  std::string Text() const override {
    const bool bytes =
        std::any_of(scales_.begin(), scales_.end(),
                    [](const ByteScale& s) { return s.scale != 0; });
    return (bytes ? "Int8 Pointwise " : "Pointwise ") + text_ +
           Bf16Text(false, round_ != nullptr);
  }

 private:
  // Where the values of a register are, and whether it repeats one.
  struct Source {
    const float* x;
    int64_t step;
  };

  // Rows at a distance are asked for a few rows ahead: beyond the end of a row
  // a core fetches what is not needed.
  static int64_t AheadOf(ValueId id, const LowerContext& context) {
    const int64_t rows = kBlock / context.shape(id).back();
    return std::max<int64_t>(rows, 1) * context.distance(id);
  }
  // Always inlined: g++ leaves out calls of functions that only ask.
  [[gnu::always_inline]] static void Ask(const float* row, int64_t n) {
    constexpr int64_t kLine = 16;
    for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(row + i);
  }

  bool IsBytes(size_t operand) const { return scales_[operand].scale != 0; }
  bool MakesFloats() const {
    return scales_.back().scale == 0 && round_ == nullptr;
  }

  void Block(const Slots& slots, const BroadcastRow& row, int64_t at, int64_t n,
             float* buffers) const {
    const auto buffer = [&](size_t reg) {
      return buffers + buffer_of_[reg] * kBlock;
    };
    std::array<Source, kMaxBroadcast> operands;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const int64_t step = row.step[i];
      const int64_t from = row.at[i] + at * step;
      operands[i] = {slots.data<float>(operands_[i]) + from, step};
      if (ahead_[i] != 0) Ask(operands[i].x + ahead_[i], n);
      if (!IsBytes(i)) continue;
      int8_.dequantise(slots.data<uint8_t>(operands_[i]) + from,
                       step == 0 ? 1 : n, scales_[i].scale, scales_[i].zero,
                       buffer(i));
      operands[i].x = buffer(i);
    }
    const int64_t out_at =
        (out_apart_ ? row.at[operands_.size()] : row.out) + at;
    const auto source = [&](int32_t reg) -> Source {
      const auto i = static_cast<size_t>(reg);
      return i < operands_.size() ? operands[i] : Source{buffer(i), 1};
    };
    const ByteScale& y = scales_.back();
    const size_t last = operands_.size() + program_.size() - 1;
    for (size_t i = 0; i < program_.size(); ++i) {
      const Instruction& op = program_[i];
      const size_t reg = operands_.size() + i;
      float* out = reg == last && MakesFloats()
                       ? slots.data<float>(out_) + out_at
                       : buffer(reg);
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
    if (round_ != nullptr) {
      round_(buffer(last), n, slots.data<Bf16>(out_) + out_at);
      return;
    }
    if (y.scale == 0) return;
    int8_.quantise(buffer(last), n, 1.0f / y.scale, y.zero,
                   slots.data<uint8_t>(out_) + out_at);
  }

  // A buffer for each operand in bytes and for each result, but for a last one
  // in floats; a result that is read no more leaves its buffer to others, maybe
  // to the instruction that reads it last.
  void AssignBuffers() {
    const size_t num_operands = operands_.size();
    std::vector<size_t> last_use(num_operands + program_.size());
    for (size_t i = 0; i < program_.size(); ++i) {
      last_use[static_cast<size_t>(program_[i].x)] = i;
      if (program_[i].kind == Pointwise::kUnary) continue;
      last_use[static_cast<size_t>(program_[i].y)] = i;
    }
    buffer_of_.assign(last_use.size(), -1);
    for (size_t i = 0; i < num_operands; ++i) {
      if (IsBytes(i)) buffer_of_[i] = num_buffers_++;
    }
    std::vector<int64_t> free;
    for (size_t i = 0; i < program_.size(); ++i) {
      const size_t reg = num_operands + i;
      for (size_t j = num_operands; j < reg; ++j) {
        if (last_use[j] == i) free.push_back(buffer_of_[j]);
      }
      if (i + 1 == program_.size() && MakesFloats()) break;
      if (free.empty()) free.push_back(num_buffers_++);
      buffer_of_[reg] = free.back();
      free.pop_back();
    }
  }

  const DenseTable& dense_;
  const Int8Table& int8_;
  const int64_t num_members_;
  const Program program_;
  const BroadcastWalk walk_;
  const std::vector<ByteScale> scales_;
  std::vector<Slot> operands_;
  std::vector<int64_t> ahead_;  // of operands in rows at a distance; 0: others
  const Slot out_;
  const bool out_apart_;
  const Rounding round_;
  std::vector<int64_t> buffer_of_;  // of each register, or -1
  int64_t num_buffers_ = 0;
  const std::string text_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakePointwiseStep(const Node& node,
                                                  const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<PointwiseStep>(node, context));
}

}  // namespace millrace::models::graph
