// Transposed convolution whose kernels overlap, phase by phase. Phases are
// stored `stride` pixels apart, so each row of one is a call.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/fused_params.h"
#include "models/graph/plan/axis_phases.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

class TransposedPhasesStep : public Step {
 public:
  struct Phase {
    AxisPhase rows;
    AxisPhase columns;
    int64_t at = 0;  // of its weights, in floats
  };

  TransposedPhasesStep(const Node& node, const LowerContext& context,
                       const ImageShape& shape, int64_t groups,
                       std::vector<Phase> phases, const float* packed)
      : products_(context.products(node)),
        num_members_(context.num_members),
        shape_(shape),
        groups_(groups),
        phases_(std::move(phases)),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        packed_(packed),
        epilogue_(node, context, shape.outputs) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    for (const Phase& phase : phases_) RunPhase(phase, slots, team);
    return OkStatus();
  }

  Factors factors() const override { return FactorsOf(products_); }
  double macs() const override {
    double macs = 0;
    for (const Phase& phase : phases_) {
      macs += static_cast<double>(phase.rows.count * phase.columns.count) *
              static_cast<double>(K(phase));
    }
    return macs * static_cast<double>(shape_.batch * shape_.outputs);
  }

  std::string Text() const override {
    std::string text = "ConvTranspose " + shape_.Text() + ", " +
                       std::to_string(phases_.size()) + " phases";
    if (groups_ > 1) text += ", " + std::to_string(groups_) + " groups";
    return text + epilogue_.Text();
  }

 private:
  void RunPhase(const Phase& phase, const Slots& slots,
                const Team& team) const {
    const ImageShape& s = shape_;
    const int64_t columns = phase.columns.count;
    const int64_t n = s.outputs / groups_;
    const int64_t channels = s.channels / groups_;
    const int64_t each = products_.packed_floats(n, K(phase));
    ConvArgs args = Sizes(phase);
    args.panel_end = (n + products_.panel - 1) / products_.panel;
    args.scratch =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberScratch();
    const Epilogue epilogue = epilogue_.At(slots);
    const auto [begin, end] =
        team.Share(s.batch * phase.rows.count * columns, kShare);
    ForEachItem(
        begin, end, columns, [&](int64_t item, int64_t first, int64_t last) {
          const int64_t image = item / phase.rows.count;
          const int64_t row = item % phase.rows.count;
          args.pixel_begin = row * columns + first;
          args.pixel_end = row * columns + last;
          // Pixel 0 is where this row's pixels would begin if all rows
          // stood as close as its own pixels.
          const int64_t to =
              image * s.out_pixels() +
              (phase.rows.first + row * s.window.stride_h) * s.out_width +
              phase.columns.first - row * columns * s.window.stride_w;
          for (int64_t group = 0; group < groups_; ++group) {
            args.x =
                s.At(slots.data<float>(x_), image, group * channels, channels);
            args.w = packed_ + phase.at + group * each;
            args.y = slots.data<float>(y_) + to * s.ld_y + group * n;
            args.epilogue = Moved(epilogue, to, group * n);
            args.epilogue.ld_residual *= s.window.stride_w;
            args.epilogue.ld_gate *= s.window.stride_w;
            products_.conv(args);
          }
        });
  }

  int64_t K(const Phase& phase) const {
    return phase.rows.taps * phase.columns.taps * shape_.channels / groups_;
  }
  // Of one group of one image.
  ConvArgs Sizes(const Phase& phase) const {
    return {.x = shape_.At(nullptr, 0, 0, shape_.channels / groups_),
            .window = {.kernel_h = phase.rows.taps,
                       .kernel_w = phase.columns.taps,
                       .pad_top = phase.rows.pad,
                       .pad_left = phase.columns.pad},
            .out_width = phase.columns.count,
            .n = shape_.outputs / groups_,
            .ld_y = shape_.ld_y * shape_.window.stride_w};
  }
  int64_t MemberScratch() const {
    int64_t most = 0;
    for (const Phase& phase : phases_) {
      most = std::max(most, products_.conv_scratch_floats(Sizes(phase)));
    }
    return (most + 15) / 16 * 16;
  }

  static constexpr int64_t kShare = 16;  // pixels

  const DenseProducts& products_;
  const int64_t num_members_;
  const ImageShape shape_;
  const int64_t groups_;
  const std::vector<Phase> phases_;
  const Slot x_;
  const Slot y_;
  const float* const packed_;
  const StepEpilogue epilogue_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeTransposedPhasesStep(
    const Node& node, const LowerContext& context) {
  const ImageShape shape = ImageShapeOf(node, context);
  const Window& window = shape.window;
  const DenseProducts& products = context.products(node);
  const int64_t groups = ParamsOf<ConvParams>(node.attrs).groups;
  const int64_t n = shape.outputs / groups;
  const int64_t channels = shape.channels / groups;
  std::vector<TransposedPhasesStep::Phase> phases;
  int64_t floats = 0;
  for (const AxisPhase& rows : PhasesOf(window.kernel_h, window.stride_h,
                                        window.pad_top, shape.out_height)) {
    for (const AxisPhase& columns :
         PhasesOf(window.kernel_w, window.stride_w, window.pad_left,
                  shape.out_width)) {
      phases.push_back({rows, columns, floats});
      floats += groups *
                products.packed_floats(n, rows.taps * columns.taps * channels);
    }
  }
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.Get(
          weight,
          context.form(node, PackedForm::Kind::kPhases,
                       {groups, window.stride_h, window.stride_w,
                        window.pad_top, window.pad_left}),
          floats, [&](const Tensor& from, float* to) {
            // [c][o][kernel_h][kernel_w] to [o][taps turned around][c].
            for (const auto& phase : phases) {
              const AxisPhase& rows = phase.rows;
              const AxisPhase& columns = phase.columns;
              const int64_t k = rows.taps * columns.taps * channels;
              std::vector<float> moved(static_cast<size_t>(n * k));
              for (int64_t group = 0; group < groups; ++group) {
                float* next = moved.data();
                for (int64_t o = 0; o < n; ++o) {
                  for (int64_t i = rows.taps - 1; i >= 0; --i) {
                    for (int64_t j = columns.taps - 1; j >= 0; --j) {
                      const int64_t row = rows.remainder + i * window.stride_h;
                      const int64_t column =
                          columns.remainder + j * window.stride_w;
                      for (int64_t c = 0; c < channels; ++c) {
                        *next++ =
                            from.data<float>()[(((group * channels + c) * n +
                                                 o) *
                                                    window.kernel_h +
                                                row) *
                                                   window.kernel_w +
                                               column];
                      }
                    }
                  }
                }
                products.pack(
                    moved.data(), n, k, {.n = k, .k = 1}, 0,
                    (n + products.panel - 1) / products.panel,
                    to + phase.at + group * products.packed_floats(n, k));
              }
            }
            return OkStatus();
          }));
  return std::unique_ptr<Step>(std::make_unique<TransposedPhasesStep>(
      node, context, shape, groups, std::move(phases), packed));
}

}  // namespace millrace::models::graph
