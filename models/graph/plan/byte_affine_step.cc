// Fused elementwise operators from bytes to bytes that are a product and a sum
// for each channel: gates, normalisations. What the program does to
//
//   a[c] * x + b[c]
//
// is found once for an image, and then each byte is read and written once.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/fused_params.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kFewestChannels = 16;

// Whether a register depends on x, which is then a * x + b.
enum class Kind : uint8_t { kFree, kAffine };

bool Cuts(const Instruction& op) {
  return op.kind == Pointwise::kUnary &&
         (op.f == Unary::kRelu || op.f == Unary::kClip);
}

// One value, or one for each channel of every image or of each.
bool IsOfChannels(const Shape& shape, const Shape& out) {
  const int missing = out.rank() - shape.rank();
  for (int i = 0; i < shape.rank(); ++i) {
    const int at = i + missing;
    if (shape[i] != 1 && at != out.rank() - 1 && at != 0) return false;
  }
  return shape.num_elements() == 1 ||
         shape[shape.rank() - 1] == out[out.rank() - 1];
}

// The operand that the program is affine in.
std::optional<size_t> AffineOperand(const Node& node,
                                    const LowerContext& context,
                                    const Program& program) {
  const Shape& out = context.shape(node.outputs[0]);
  const std::vector<ByteScale>& scales =
      ParamsOf<PointwiseParams>(node.attrs).scales;
  if (scales.empty() || !scales.back().given() || out.rank() < 2 ||
      out[out.rank() - 1] < kFewestChannels) {
    return std::nullopt;
  }
  std::optional<size_t> x;
  std::vector<Kind> kinds;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Shape& shape = context.shape(node.inputs[i]);
    const bool is_x = shape == out && scales[i].given() && !x;
    if (is_x) x = i;
    if (!is_x && !IsOfChannels(shape, out)) return std::nullopt;
    kinds.push_back(is_x ? Kind::kAffine : Kind::kFree);
  }
  for (const Instruction& op : program) {
    const Kind a = kinds[static_cast<size_t>(op.x)];
    const Kind b = op.kind == Pointwise::kUnary
                       ? Kind::kFree
                       : kinds[static_cast<size_t>(op.y)];
    const bool last = &op == &program.back();
    bool fits = a == Kind::kFree && b == Kind::kFree;
    switch (op.kind) {
      case Pointwise::kUnary:
        fits = fits || (last && Cuts(op));
        break;
      case Pointwise::kAdd:
      case Pointwise::kSub:
        fits = true;
        break;
      case Pointwise::kMul:
        fits = a == Kind::kFree || b == Kind::kFree;
        break;
      case Pointwise::kDiv:
        fits = b == Kind::kFree;
        break;
      case Pointwise::kMin:
      case Pointwise::kMax:
        break;
    }
    if (!fits) return std::nullopt;
    kinds.push_back(a == Kind::kAffine || b == Kind::kAffine ? Kind::kAffine
                                                             : Kind::kFree);
  }
  if (!x || kinds.back() != Kind::kAffine) return std::nullopt;
  return x;
}

class ByteAffineStep : public Step {
 public:
  ByteAffineStep(const Node& node, const LowerContext& context, Program program,
                 size_t x)
      : dense_(context.dense),
        int8_(context.int8),
        num_members_(context.num_members),
        program_(std::move(program)),
        x_(x),
        out_(context.slot(node.outputs[0])),
        text_(context.shape(node.outputs[0]).ToString()) {
    const Shape& out = context.shape(node.outputs[0]);
    channels_ = out[out.rank() - 1];
    const std::vector<ByteScale>& scales =
        ParamsOf<PointwiseParams>(node.attrs).scales;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Shape& shape = context.shape(node.inputs[i]);
      const int64_t n = shape.num_elements();
      operands_.push_back({context.slot(node.inputs[i]), scales[i].scale,
                           scales[i].zero, n == 1 ? 0 : 1,
                           i != x && n > channels_});
      if (i != x && n > channels_) images_ = out[0];
    }
    rows_ = out.num_elements() / channels_ / images_;
    y_ = scales.back();
    if (const Instruction& last = program_.back(); Cuts(last)) {
      low_ = last.f == Unary::kRelu ? 0 : last.a / y_.scale;
      if (last.f == Unary::kClip) high_ = last.b / y_.scale;
    }
  }

  int64_t scratch_bytes() const override {
    return num_members_ * MemberFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    float* mine =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberFloats();
    const auto [begin, end] = team.Share(images_ * rows_);
    ForEachItem(
        begin, end, rows_, [&](int64_t image, int64_t first, int64_t last) {
          const float* line = Find(slots, image, mine);
          const int64_t at = (image * rows_ + first) * channels_;
          int8_.affine({.x = slots.data<uint8_t>(operands_[x_].slot) + at,
                        .rows = last - first,
                        .n = channels_,
                        .scale = line,
                        .bias = line + channels_,
                        .low = low_,
                        .high = high_,
                        .zero = y_.zero,
                        .y = slots.data<uint8_t>(out_) + at});
        });
    return OkStatus();
  }

  std::string Text() const override {
    return "Int8 Affine " + text_ + ", " + std::to_string(program_.size()) +
           " functions of " + std::to_string(operands_.size());
  }

 private:
  struct Operand {
    Slot slot;
    float scale;  // 0: floats
    int32_t zero;
    int64_t step;  // of channels
    bool of_images;
  };

  // A line is a and b of each channel; of what is free, b alone.
  int64_t MemberFloats() const {
    const auto lines = static_cast<int64_t>(operands_.size() + program_.size());
    return (lines * 2 * channels_ + 15) / 16 * 16;
  }

  // a and b of the result, in its steps.
  const float* Find(const Slots& slots, int64_t image, float* lines) const {
    const auto line = [&](size_t reg) {
      return lines + static_cast<int64_t>(reg) * 2 * channels_;
    };
    for (size_t i = 0; i < operands_.size(); ++i)
      Load(slots, image, i, line(i));
    for (size_t i = 0; i < program_.size(); ++i) {
      const Instruction& op = program_[i];
      const size_t reg = operands_.size() + i;
      if (reg + 1 == operands_.size() + program_.size() && Cuts(op)) {
        std::copy_n(line(static_cast<size_t>(op.x)), 2 * channels_, line(reg));
      } else {
        Do(op, line(static_cast<size_t>(op.x)), line(static_cast<size_t>(op.y)),
           line(reg));
      }
    }
    float* last = line(operands_.size() + program_.size() - 1);
    for (int64_t i = 0; i < 2 * channels_; ++i) last[i] /= y_.scale;
    return last;
  }

  void Load(const Slots& slots, int64_t image, size_t i, float* line) const {
    const Operand& from = operands_[i];
    const bool is_x = i == x_;
    for (int64_t c = 0; c < channels_; ++c) {
      line[c] = is_x ? from.scale : 0;
      if (is_x) {
        line[channels_ + c] = -from.scale * static_cast<float>(from.zero);
        continue;
      }
      const int64_t at =
          (from.of_images ? image * channels_ : 0) + c * from.step;
      line[channels_ + c] =
          from.scale == 0
              ? slots.data<float>(from.slot)[at]
              : from.scale * static_cast<float>(
                                 int32_t{slots.data<uint8_t>(from.slot)[at]} -
                                 from.zero);
    }
  }

  void Do(const Instruction& op, const float* x, const float* y,
          float* out) const {
    const int64_t n = channels_;
    const float* xb = x + n;
    const float* yb = y + n;
    switch (op.kind) {
      case Pointwise::kUnary:
        std::fill_n(out, n, 0.0f);
        dense_.unary(op.f, op.a, op.b, xb, n, out + n);
        return;
      case Pointwise::kAdd:
        for (int64_t i = 0; i < 2 * n; ++i) out[i] = x[i] + y[i];
        return;
      case Pointwise::kSub:
        for (int64_t i = 0; i < 2 * n; ++i) out[i] = x[i] - y[i];
        return;
      case Pointwise::kMul:  // one of them is free
        for (int64_t i = 0; i < n; ++i) {
          out[i] = x[i] * yb[i] + xb[i] * y[i];
          out[n + i] = xb[i] * yb[i];
        }
        return;
      case Pointwise::kDiv:
        for (int64_t i = 0; i < n; ++i) {
          out[i] = x[i] / yb[i];
          out[n + i] = xb[i] / yb[i];
        }
        return;
      case Pointwise::kMin:
      case Pointwise::kMax:
        std::fill_n(out, n, 0.0f);
        for (int64_t i = 0; i < n; ++i) {
          out[n + i] = op.kind == Pointwise::kMin ? std::min(xb[i], yb[i])
                                                  : std::max(xb[i], yb[i]);
        }
        return;
    }
  }

  const DenseTable& dense_;
  const Int8Table& int8_;
  const int64_t num_members_;
  const Program program_;
  const size_t x_;
  std::vector<Operand> operands_;
  ByteScale y_;
  const Slot out_;
  int64_t channels_ = 0;
  int64_t images_ = 1;  // that differ in their operands
  int64_t rows_ = 0;    // of each
  float low_ = -255;    // of the result in its steps
  float high_ = 255;
  const std::string text_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeByteAffineStep(
    const Node& node, const LowerContext& context) {
  Program program = ParamsOf<PointwiseParams>(node.attrs).program;
  const auto x = AffineOperand(node, context, program);
  if (!x) return MakePointwiseStep(node, context);
  return std::unique_ptr<Step>(
      std::make_unique<ByteAffineStep>(node, context, std::move(program), *x));
}

}  // namespace millrace::models::graph
