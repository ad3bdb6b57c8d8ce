// Transposed convolutions on bytes, phase by phase. Where the kernel is as wide
// as its stride, the phases of a row stand side by side in the result: they are
// one product with the outputs of all of them.
//
// Each row of a phase is a call, and rows may be short; so a few panels are
// taken over all rows before the next few, which keeps them in the cache.
#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/plan/axis_phases.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

// Phases of rows and columns with the columns' outputs side by side.
struct Phase {
  AxisPhase rows;
  AxisPhase columns;
  int64_t side_by_side = 1;  // columns of the kernel
  int64_t n = 0;             // outputs of all of them
  int64_t k = 0;

  // Of the ordinary convolution.
  Window window() const {
    return {.kernel_h = rows.taps,
            .kernel_w = columns.taps,
            .pad_top = rows.pad,
            .pad_left = columns.pad};
  }
};

bool StandSideBySide(const ImageShape& s) {
  return s.window.kernel_w == s.window.stride_w && s.window.pad_left == 0 &&
         s.out_width == s.width * s.window.stride_w;
}

std::vector<Phase> PhasesOfImage(const ImageShape& s) {
  const Window& w = s.window;
  std::vector<AxisPhase> columns =
      PhasesOf(w.kernel_w, w.stride_w, w.pad_left, s.out_width);
  const bool joined = StandSideBySide(s);
  if (joined) columns.resize(1);
  std::vector<Phase> phases;
  for (const AxisPhase& row :
       PhasesOf(w.kernel_h, w.stride_h, w.pad_top, s.out_height)) {
    for (const AxisPhase& column : columns) {
      const int64_t together = joined ? w.stride_w : 1;
      phases.push_back({row, column, together, together * s.outputs,
                        row.taps * column.taps * s.channels});
    }
  }
  return phases;
}

// [outputs][channels][taps] to the phase's [column, outputs][its taps turned
// around][channels].
std::vector<int8_t> WeightOf(const Phase& phase, const ImageShape& s,
                             const SignedWeight& all) {
  std::vector<int8_t> weight;
  for (int64_t side = 0; side < phase.side_by_side; ++side) {
    for (int64_t o = 0; o < s.outputs; ++o) {
      for (int64_t i = phase.rows.taps - 1; i >= 0; --i) {
        for (int64_t j = phase.columns.taps - 1; j >= 0; --j) {
          const int64_t row = phase.rows.remainder + i * s.window.stride_h;
          const int64_t column =
              phase.columns.remainder + side + j * s.window.stride_w;
          const int64_t tap = row * s.window.kernel_w + column;
          for (int64_t c = 0; c < s.channels; ++c) {
            weight.push_back(all.values[static_cast<size_t>(
                (o * s.channels + c) * s.taps() + tap)]);
          }
        }
      }
    }
  }
  return weight;
}

class ByteTransposedStep : public Step {
 public:
  ByteTransposedStep(const Node& node, const LowerContext& context,
                     const ImageShape& shape, std::vector<Phase> phases,
                     std::vector<ByteEpilogue> epilogues,
                     const PackedBytes& packed)
      : int8_(context.int8),
        num_members_(context.num_members),
        shape_(shape),
        phases_(std::move(phases)),
        epilogues_(std::move(epilogues)),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        packed_(packed) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch();
  }

  Status Run(const Slots& slots, const Team& team) const override {
    for (size_t i = 0; i < phases_.size(); ++i) RunPhase(i, slots, team);
    return OkStatus();
  }

  int64_t held_bytes() const override {
    int64_t bytes = 0;
    for (const ByteEpilogue& epilogue : epilogues_) {
      bytes += epilogue.held_bytes();
    }
    return bytes;
  }
  Factors factors() const override { return Factors::kInt8; }
  double macs() const override {
    double macs = 0;
    for (const Phase& phase : phases_) {
      macs += static_cast<double>(phase.rows.count * phase.columns.count) *
              static_cast<double>(phase.n * phase.k);
    }
    return macs * static_cast<double>(shape_.batch);
  }

  std::string Text() const override {
    return "Int8 ConvTranspose " + shape_.Text() + ", " +
           std::to_string(phases_.size()) + " phases" + epilogues_[0].Text();
  }

 private:
  void RunPhase(size_t at, const Slots& slots, const Team& team) const {
    const ImageShape& s = shape_;
    const Phase& phase = phases_[at];
    const ByteEpilogue& behind = epilogues_[at];
    const int64_t columns = phase.columns.count;
    const int64_t rows = phase.rows.count;
    Int8ConvArgs args{.x = {},
                      .window = phase.window(),
                      .out_width = columns,
                      .w = packed_.data + packed_.part_at[at],
                      .n = phase.n,
                      .ld_y = s.outputs * s.window.stride_w};
    args.scratch = reinterpret_cast<uint8_t*>(slots.scratch) +
                   team.index * MemberScratch();
    Int8Epilogue epilogue = behind.At(slots, nullptr);
    epilogue.ld_residual = args.ld_y;
    const uint8_t x_zero = behind.x_zero(slots);
    const int64_t panels = (phase.n + int8_.panel - 1) / int8_.panel;
    const int64_t few = std::clamp<int64_t>(
        kCached / (int8_.panel * std::max<int64_t>(phase.k, 1)), 1, panels);
    const auto [begin, end] = team.Share(s.batch * rows * columns, kShare);
    for (int64_t panel = 0; panel < panels; panel += few) {
      args.panel_begin = panel;
      args.panel_end = std::min(panel + few, panels);
      ForEachItem(
          begin, end, columns, [&](int64_t item, int64_t first, int64_t last) {
            const int64_t image = item / rows;
            const int64_t row = item % rows;
            args.pixel_begin = row * columns + first;
            args.pixel_end = row * columns + last;
            args.x = ByteImageAt(s, slots.data<uint8_t>(x_), image, 0,
                                 s.channels, x_zero);
            // Pixel 0 is where this row's pixels would begin if all rows stood
            // as close as its own pixels.
            const int64_t to =
                (image * s.out_pixels() +
                 (phase.rows.first + row * s.window.stride_h) * s.out_width +
                 phase.columns.first - row * columns * s.window.stride_w) *
                s.outputs;
            args.epilogue = epilogue;
            if (epilogue.residual != nullptr) args.epilogue.residual += to;
            if (epilogue.residual_f32 != nullptr) {
              args.epilogue.residual_f32 += to;
            }
            if (behind.gives_bytes()) {
              args.y = slots.data<uint8_t>(y_) + to;
            } else {
              args.y_f32 = slots.data<float>(y_) + to;
            }
            int8_.conv(args);
          });
    }
  }

  int64_t MemberScratch() const {
    int64_t most = 0;
    for (const Phase& phase : phases_) {
      most = std::max(
          most, int8_.conv_scratch_bytes(phase.window(), phase.columns.count,
                                         shape_.channels));
    }
    return (most + 63) / 64 * 64;
  }

  static constexpr int64_t kShare = 12;          // pixels
  static constexpr int64_t kCached = 24 * 1024;  // bytes of weights

  const Int8Table& int8_;
  const int64_t num_members_;
  const ImageShape shape_;
  const std::vector<Phase> phases_;
  const std::vector<ByteEpilogue> epilogues_;  // of each phase
  const Slot x_;
  const Slot y_;
  const PackedBytes& packed_;  // a part for each phase
};

BytesToPack WeightToPack(const Integers& integers, const ImageShape& shape,
                         const std::vector<Phase>& phases,
                         const Int8Table& int8) {
  const auto all = SignedWeightOf(integers, 1);
  CHECK(all.has_value(), "the pass has proven the weights");
  std::vector<std::vector<int8_t>> weights;
  BytesToPack todo;
  for (const Phase& phase : phases) {
    const std::vector<int8_t>& w =
        weights.emplace_back(WeightOf(phase, shape, *all));
    for (int64_t n = 0; n < phase.n; ++n) {
      const int8_t* of = w.data() + n * phase.k;
      todo.sums.push_back(std::accumulate(of, of + phase.k, int32_t{0}));
    }
    todo.part_at.push_back(todo.num_bytes);
    const int64_t bytes =
        int8.packed_bytes(w.data(), phase.n, phase.window(), shape.channels);
    todo.num_bytes += (bytes + 63) / 64 * 64;
  }
  todo.pack = [&int8, &shape, &phases, weights = std::move(weights),
               part_at = todo.part_at](int8_t* to) {
    for (size_t i = 0; i < phases.size(); ++i) {
      int8.pack(weights[i].data(), phases[i].n, phases[i].window(),
                shape.channels, to + part_at[i]);
    }
    return OkStatus();
  };
  return todo;
}

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeByteTransposedStep(
    const Node& node, const LowerContext& context) {
  const ImageShape shape = ImageShapeOf(node, context);
  const Integers& integers = *context.graph.value(node.inputs[1]).integers;
  std::vector<Phase> phases = PhasesOfImage(shape);
  PackedForm form{PackedForm::Kind::kBytePhases,
                  ByteSizes(shape.window, integers)};
  form.sizes.push_back(phases[0].side_by_side);
  ASSIGN_OR_RETURN(const PackedBytes* packed,
                   context.packed.GetBytes(integers.values, form, [&] {
                     return WeightToPack(integers, shape, phases, context.int8);
                   }));
  std::vector<ByteEpilogue> epilogues;
  std::span<const int32_t> sums = packed->sums;
  for (const Phase& phase : phases) {
    const auto n = static_cast<size_t>(phase.n);
    epilogues.emplace_back(node, SlottedGraph{context.graph, context.slot_of},
                           ByteOutputs{sums.first(n), integers.scales},
                           shape.outputs);
    sums = sums.subspan(n);
  }
  return std::unique_ptr<Step>(std::make_unique<ByteTransposedStep>(
      node, context, shape, std::move(phases), std::move(epilogues), *packed));
}

}  // namespace millrace::models::graph
