// Regions of images whose borders are rounded to pixels: MaxRoiPool (Girshick
// 2015), and PsRoiPool (Dai et al. 2016), which ONNX has not: the mean of each
// cell, taken from a channel of that cell's own.
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/regions.h"

namespace millrace::models::graph {
namespace {

// x [n, c, h, w], rois [r, 5] as image, x1, y1, x2, y2.
template <bool kOwnChannels>
Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 2));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(SameType(call, 1, "rois"));
  const Shape& x = call.arg(0).shape;
  const Shape& rois = call.arg(1).shape;
  if (x.rank() != 4 || rois.rank() != 2 || rois[1] != 5 || x[2] < 1 ||
      x[3] < 1) {
    return InvalidArgument("x of shape " + x.ToString() + " and rois of " +
                           rois.ToString() + " do not fit together");
  }
  const std::vector<int64_t>& cells = call.attrs().Ints("pooled_shape");
  if (cells.size() != 2 || cells[0] < 1 || cells[1] < 1) {
    return InvalidArgument("pooled_shape must be two positive numbers");
  }
  int64_t channels = x[1];
  if (kOwnChannels) {
    ASSIGN_OR_RETURN(channels, ChannelsOfCells(channels, cells[0], cells[1]));
  }
  const int64_t dims[] = {rois[0], channels, cells[0], cells[1]};
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

// The pixels of cell `i` of `cells` along one axis, cut at `most`.
template <typename M>
std::pair<int64_t, int64_t> Pixels(M from, M size, int64_t i, int64_t cells,
                                   int64_t most) {
  const M cell = size / static_cast<M>(cells);
  const auto cut = [&](M at) {
    at += from;
    if (!(at > 0)) return int64_t{0};
    return at < static_cast<M>(most) ? static_cast<int64_t>(at) : most;
  };
  return {cut(std::floor(static_cast<M>(i) * cell)),
          cut(std::ceil(static_cast<M>(i + 1) * cell))};
}

template <typename M, bool kMean, typename T>
M Pooled(const T* plane, int64_t width, std::pair<int64_t, int64_t> rows,
         std::pair<int64_t, int64_t> cols) {
  if (rows.first >= rows.second || cols.first >= cols.second) return 0;
  M value = kMean ? M(0) : -std::numeric_limits<M>::infinity();
  for (int64_t y = rows.first; y < rows.second; ++y) {
    for (int64_t x = cols.first; x < cols.second; ++x) {
      const M pixel = plane[y * width + x];
      value = kMean ? value + pixel : std::max(value, pixel);
    }
  }
  if (!kMean) return value;
  return value / static_cast<M>((rows.second - rows.first) *
                                (cols.second - cols.first));
}

template <bool kOwnChannels>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  const Shape& x = call.arg(0).shape;
  const Shape& out = results[0].shape;
  const double scale = call.attrs().Float("spatial_scale", 1);
  // As torchvision has them: the mean never sees the last row and column, and
  // its regions end where the maximum's have one pixel more.
  const int64_t most_y = x[2] - (kOwnChannels ? 1 : 0);
  const int64_t most_x = x[3] - (kOwnChannels ? 1 : 0);
  const int64_t cells = out[2] * out[3];
  return DispatchFloat(call.arg(0).dtype, [&]<typename T>() -> Status {
    using M = MathType<T>;
    const T* rois = call.arg(1).data<T>();
    for (int64_t r = 0; r < out[0]; ++r) {
      const M image = rois[r * 5];
      if (!(image >= 0 && image < static_cast<M>(x[0]))) {
        return OutOfRange("the image of a region is not one of " +
                          std::to_string(x[0]));
      }
    }
    const auto [begin, end] = team.Share(out[0]);
    for (int64_t r = begin; r < end; ++r) {
      const T* roi = rois + r * 5;
      const auto edge = [&](int i) {
        return std::round(M(roi[i]) * static_cast<M>(scale));
      };
      const M x1 = edge(1);
      const M y1 = edge(2);
      const M more = kOwnChannels ? M(0) : M(1);
      const M width = std::max(edge(3) - x1 + more, M(1));
      const M height = std::max(edge(4) - y1 + more, M(1));
      const T* planes = call.arg(0).data<T>() +
                        static_cast<int64_t>(M(roi[0])) * x[1] * x[2] * x[3];
      for (int64_t p = 0; p < cells; ++p) {
        const auto rows = Pixels(y1, height, p / out[3], out[2], most_y);
        const auto cols = Pixels(x1, width, p % out[3], out[3], most_x);
        for (int64_t c = 0; c < out[1]; ++c) {
          const int64_t plane = kOwnChannels ? c * cells + p : c;
          results[0].data<T>()[(r * out[1] + c) * cells + p] =
              static_cast<T>(Pooled<M, kOwnChannels>(
                  planes + plane * x[2] * x[3], x[3], rows, cols));
        }
      }
    }
    return OkStatus();
  });
}

constexpr OpDef kOps[] = {
    {"MaxRoiPool", Infer<false>, Run<false>, Work::kSplits},
    {"PsRoiPool", Infer<true>, Run<true>, Work::kSplits},
};

}  // namespace

std::span<const OpDef> RegionPoolOps() { return kOps; }

}  // namespace millrace::models::graph
