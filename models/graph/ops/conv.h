// Convolutions as products of the weights and the image's patches, for any
// element type that a load function turns into what is accumulated in.
#pragma once

#include <cstdint>

#include "models/graph/op.h"
#include "models/graph/ops/gemm/gemm.h"
#include "models/graph/ops/patches.h"

namespace millrace::models::graph {

//   x        [batch, groups * group_in, spatial...]
//   weights  [groups * group_out, group_in, kernel...]
//   y        [batch, groups * group_out, windows...]
struct ConvPlan {
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t group_in = 0;
  int64_t group_out = 0;
  Window window;
  Shape out;

  int64_t patch() const { return group_in * window.num_kernel(); }
};

// Of the attributes of ONNX's Conv. INVALID_ARGUMENT says what does not fit.
StatusOr<ConvPlan> PlanConv(const Attrs& attrs, const Shape& x,
                            const Shape& weights);

// One channel of a group that reads a single channel: too little for a product
// to be worth its packing.
template <typename M, typename Load>
void SlideInto(const Window& window, const M* weights, const Load& load,
               M* sums) {
  const int64_t per_row = window.axes[2].out;
  const int64_t stride = window.axes[2].stride;
  std::fill_n(sums, window.num_out(), M(0));
  for (int64_t k = 0; k < window.num_kernel(); ++k) {
    const KernelPosition kernel = PositionOf(window, k);
    for (int64_t at = 0; at < window.num_out(); at += per_row) {
      const PatchRun run = RunOf(window, kernel, at / per_row, 0, per_row);
      M* to = sums + at + run.low;
      for (int64_t i = 0; i < run.high - run.low; ++i) {
        to[i] += weights[k] * load(run.element + i * stride);
      }
    }
  }
}

// Computes this member's part of the result. weights are in M; load(i) is
// element i of x; store(row, num_cols, at, sums) takes the sums of one output
// channel (counted over all groups), whose first is element `at` of y.
template <typename M, typename Load, typename Store>
void ConvInto(const ConvPlan& plan, const M* weights, const Load& load,
              const Store& store, const Team& team) {
  const int64_t pixels = plan.window.num_out();
  const int64_t image = plan.group_in * plan.window.num_in();
  const int64_t units = plan.batch * plan.groups;
  if (plan.group_in == 1 && plan.groups > 1) {
    const auto [first, last] = team.Share(units * plan.group_out);
    const auto sums = Scratch<M>(pixels);
    for (int64_t i = first; i < last && pixels > 0; ++i) {
      const int64_t unit = i / plan.group_out;
      const int64_t channel = i % (plan.groups * plan.group_out);
      SlideInto<M>(
          plan.window, weights + channel * plan.patch(),
          [&](int64_t e) { return load(unit * image + e); }, sums.get());
      store(channel, pixels, i * pixels, sums.get());
    }
    return;
  }
  const bool by_unit = units >= 4 * team.count;
  const auto [begin, end] =
      by_unit ? team.Share(units) : std::pair<int64_t, int64_t>(0, units);
  const GemmPart part =
      ShareOf(plan.group_out, pixels, by_unit ? Team{} : team);
  if (part.num_rows <= 0) return;
  // Some thousand columns at a time keep the sums in the cache.
  constexpr int64_t kColumns = 2048;
  const auto sums =
      Scratch<M>(part.num_rows * std::min(kColumns, part.num_cols));
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t group = unit % plan.groups;
    const M* rows =
        weights + (group * plan.group_out + part.row) * plan.patch();
    for (int64_t done = 0; done < part.num_cols; done += kColumns) {
      const int64_t col = part.col + done;
      const int64_t cols = std::min(kColumns, part.num_cols - done);
      const auto pack = [&](int64_t k0, int64_t kc, int64_t n0, int64_t width,
                            int64_t panel_cols, M* panel) {
        PackPatches<M>(
            plan.window, [&](int64_t i) { return load(unit * image + i); }, k0,
            kc, col + n0, width, panel_cols, panel);
      };
      Gemm<M>({part.num_rows, cols, plan.patch()}, rows, plan.patch(), pack,
              sums.get(), cols);
      for (int64_t r = 0; r < part.num_rows; ++r) {
        const int64_t channel = part.row + r;
        store(group * plan.group_out + channel, cols,
              (unit * plan.group_out + channel) * pixels + col,
              sums.get() + r * cols);
      }
    }
  }
}

}  // namespace millrace::models::graph
