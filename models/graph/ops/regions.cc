// Regions of images: RoiAlign (He et al. 2017) and NonMaxSuppression.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/regions.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kMostSamples = 1 << 10;  // of one cell along one axis

// x [n, c, h, w], rois [r, 4] as x1, y1, x2, y2, batch_indices [r]. Where
// `own_channels` is not 0, which ONNX has not, cells have channels of their own
// (PS-RoI align, Li et al. 2017).
Types InferRoi(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 3, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(SameType(call, 1, "rois"));
  const Attrs& attrs = call.attrs();
  const Shape& x = call.arg(0).shape;
  const Shape& rois = call.arg(1).shape;
  if (x.rank() != 4 || rois.rank() != 2 || rois[1] != 4 || x[2] < 1 ||
      x[3] < 1) {
    return InvalidArgument("x of shape " + x.ToString() + " and rois of " +
                           rois.ToString() + " do not fit together");
  }
  RETURN_IF_ERROR(ShapeIs(call, 2, {rois[0]}, "batch_indices"));
  if (call.arg(2).dtype != DType::kI64) {
    return InvalidArgument("batch_indices must be INT64");
  }
  const std::string_view mode = attrs.Text("mode", "avg");
  if (mode != "avg" && mode != "max") {
    return Unimplemented("mode '" + std::string(mode) + "'");
  }
  const int64_t samples = attrs.Int("sampling_ratio", 0);
  const int64_t height = attrs.Int("output_height", 1);
  const int64_t width = attrs.Int("output_width", 1);
  if (samples < 0 || samples > kMostSamples || height < 1 || width < 1) {
    return InvalidArgument(
        "the output's size must be positive, and "
        "sampling_ratio 0 to 1024");
  }
  int64_t channels = x[1];
  if (attrs.Int("own_channels", 0) != 0) {
    ASSIGN_OR_RETURN(channels, ChannelsOfCells(channels, height, width));
  }
  const int64_t dims[] = {rois[0], channels, height, width};
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

// Four neighbours of a point and their weights; no weight outside.
template <typename M>
struct Bilinear {
  std::array<int64_t, 4> at = {};
  std::array<M, 4> weight = {};

  Bilinear(M y, M x, int64_t height, int64_t width) {
    const auto h = static_cast<M>(height);
    const auto w = static_cast<M>(width);
    if (!(y >= -1 && y <= h && x >= -1 && x <= w)) return;
    y = std::clamp(y, M(0), h - 1);
    x = std::clamp(x, M(0), w - 1);
    const auto y0 = static_cast<int64_t>(y);
    const auto x0 = static_cast<int64_t>(x);
    const int64_t y1 = std::min(y0 + 1, height - 1);
    const int64_t x1 = std::min(x0 + 1, width - 1);
    const M ry = y - static_cast<M>(y0);
    const M rx = x - static_cast<M>(x0);
    at = {y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1};
    weight = {(1 - ry) * (1 - rx), (1 - ry) * rx, ry * (1 - rx), ry * rx};
  }
};

Status RunRoi(const Call& call, std::span<const Result> results,
              const Team& team) {
  const Attrs& attrs = call.attrs();
  const Shape& x = call.arg(0).shape;
  const Shape& out = results[0].shape;
  const bool half_pixel = attrs.Text("coordinate_transformation_mode",
                                     "half_pixel") == "half_pixel";
  const bool max = attrs.Text("mode", "avg") == "max";
  const bool own = attrs.Int("own_channels", 0) != 0;
  const int64_t ratio = attrs.Int("sampling_ratio", 0);
  const auto* images = call.arg(2).data<int64_t>();
  for (int64_t r = 0; r < out[0]; ++r) {
    if (images[r] < 0 || images[r] >= x[0]) {
      return OutOfRange("batch index " + std::to_string(images[r]) +
                        " of a batch of " + std::to_string(x[0]));
    }
  }
  const auto [begin, end] = team.Share(out[0]);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const auto scale = static_cast<M>(attrs.Float("spatial_scale", 1));
    const M offset = half_pixel ? M(0.5) : M(0);
    for (int64_t r = b; r < e; ++r) {
      const T* roi = call.arg(1).data<T>() + r * 4;
      const M x1 = M(roi[0]) * scale - offset;
      const M y1 = M(roi[1]) * scale - offset;
      M width = M(roi[2]) * scale - offset - x1;
      M height = M(roi[3]) * scale - offset - y1;
      if (!half_pixel) {
        width = std::max(width, M(1));
        height = std::max(height, M(1));
      }
      const M bin_h = height / static_cast<M>(out[2]);
      const M bin_w = width / static_cast<M>(out[3]);
      const auto samples = [&](M bin) {
        if (ratio > 0) return ratio;
        const M n = std::ceil(bin);
        return n > 0 ? static_cast<int64_t>(
                           std::min(n, static_cast<M>(kMostSamples)))
                     : int64_t{0};
      };
      const int64_t sy = samples(bin_h);
      const int64_t sx = samples(bin_w);
      const auto count = static_cast<M>(std::max<int64_t>(sy * sx, 1));
      for (int64_t p = 0; p < out[2] * out[3]; ++p) {
        std::vector<Bilinear<M>> points;
        for (int64_t i = 0; i < sy * sx; ++i) {
          const M y =
              y1 + static_cast<M>(p / out[3]) * bin_h +
              (static_cast<M>(i / sx) + M(0.5)) * bin_h / static_cast<M>(sy);
          const M at =
              x1 + static_cast<M>(p % out[3]) * bin_w +
              (static_cast<M>(i % sx) + M(0.5)) * bin_w / static_cast<M>(sx);
          points.emplace_back(y, at, x[2], x[3]);
        }
        for (int64_t c = 0; c < out[1]; ++c) {
          const int64_t from = own ? c * out[2] * out[3] + p : c;
          const T* plane =
              call.arg(0).data<T>() + (images[r] * x[1] + from) * x[2] * x[3];
          M value = 0;
          bool first = true;
          for (const Bilinear<M>& point : points) {
            M sum = 0;
            M top = 0;
            for (size_t k = 0; k < 4; ++k) {
              const M part = point.weight[k] * M(plane[point.at[k]]);
              sum += part;
              top = k == 0 ? part : std::max(top, part);
            }
            // ONNX's max is that of the weighted neighbours.
            if (max) value = first ? top : std::max(value, top);
            if (!max) value += sum;
            first = false;
          }
          results[0].data<T>()[(r * out[1] + c) * out[2] * out[3] + p] =
              static_cast<T>(max ? value : value / count);
        }
      }
    }
  });
  return OkStatus();
}

// boxes [n, b, 4] and scores [n, classes, b], both FP32; then optional
// scalars: boxes kept of each class, IoU and score thresholds.
struct Box {
  float y1, x1, y2, x2;
  float area() const { return (y2 - y1) * (x2 - x1); }
};

Box BoxAt(const float* p, bool centres) {
  if (centres) {
    return {p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
  }
  return {std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]),
          std::max(p[1], p[3])};
}

float Overlap(const Box& a, const Box& b) {
  const float h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (!(h > 0) || !(w > 0)) return 0;
  const float both = h * w;
  const float either = a.area() + b.area() - both;
  return either > 0 ? both / either : 0;
}

Status CheckNms(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 5));
  const Shape& boxes = call.arg(0).shape;
  const Shape& scores = call.arg(1).shape;
  if (boxes.rank() != 3 || boxes[2] != 4 || scores.rank() != 3 ||
      scores[0] != boxes[0] || scores[2] != boxes[1] ||
      call.arg(0).dtype != DType::kF32 || call.arg(1).dtype != DType::kF32) {
    return InvalidArgument(
        "boxes " + TypeText(call.arg(0).dtype, boxes) + " and scores " +
        TypeText(call.arg(1).dtype, scores) + " do not fit together");
  }
  for (size_t i = 2; i < 5; ++i) {
    const Arg& arg = call.arg(i);
    const DType dtype = i == 2 ? DType::kI64 : DType::kF32;
    if (arg.given && (arg.dtype != dtype || arg.num_elements() != 1)) {
      return InvalidArgument("a limit is " + TypeText(arg.dtype, arg.shape) +
                             ", not one " + std::string(DTypeName(dtype)));
    }
  }
  for (size_t i = 0; i < 5; ++i) {
    if (call.arg(i).given && call.arg(i).bytes == nullptr) {
      return NeedsBytes("the boxes and their scores");
    }
  }
  return OkStatus();
}

// Rows of image, class, box, by class and falling score.
std::vector<int64_t> Select(const Call& call) {
  const int64_t count = call.arg(0).shape[1];
  const int64_t classes = call.arg(1).shape[1];
  const auto* boxes = call.arg(0).data<float>();
  const auto* scores = call.arg(1).data<float>();
  const int64_t most = call.arg(2).given ? *call.arg(2).data<int64_t>() : 0;
  const float iou = call.arg(3).given ? *call.arg(3).data<float>() : 0;
  const bool limits = call.arg(4).given;
  const float least = limits ? *call.arg(4).data<float>() : 0;
  const bool centres = call.attrs().Int("center_point_box", 0) != 0;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < call.arg(0).shape[0] * classes; ++i) {
    const float* score = scores + i * count;
    const float* box = boxes + i / classes * count * 4;
    std::vector<int64_t> order;
    for (int64_t k = 0; k < count; ++k) {
      // A score that is NaN cannot be put in order.
      if (score[k] == score[k] && (!limits || score[k] > least)) {
        order.push_back(k);
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return score[a] > score[b]; });
    std::vector<Box> kept;
    for (const int64_t k : order) {
      if (static_cast<int64_t>(kept.size()) >= most) break;
      const Box candidate = BoxAt(box + k * 4, centres);
      const bool hidden = std::any_of(
          kept.begin(), kept.end(),
          [&](const Box& other) { return Overlap(candidate, other) > iou; });
      if (hidden) continue;
      kept.push_back(candidate);
      rows.insert(rows.end(), {i / classes, i % classes, k});
    }
  }
  return rows;
}

Types InferNms(const Call& call) {
  RETURN_IF_ERROR(CheckNms(call));
  const auto rows = static_cast<int64_t>(Select(call).size()) / 3;
  return Outputs(call, {{DType::kI64, {rows, 3}}});
}

Status RunNms(const Call& call, std::span<const Result> results, const Team&) {
  const std::vector<int64_t> rows = Select(call);
  CHECK(static_cast<int64_t>(rows.size()) == results[0].num_elements(),
        "infer has seen the same boxes");
  std::copy(rows.begin(), rows.end(), results[0].data<int64_t>());
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"RoiAlign", InferRoi, RunRoi, Work::kSplits},
    {"NonMaxSuppression", InferNms, RunNms},
};

}  // namespace

StatusOr<int64_t> ChannelsOfCells(int64_t channels, int64_t height,
                                  int64_t width) {
  if (channels % height != 0 || channels / height % width != 0) {
    return InvalidArgument(
        std::to_string(channels) + " channels cannot be shared by " +
        std::to_string(height) + " x " + std::to_string(width) + " cells");
  }
  return channels / height / width;
}

std::span<const OpDef> RegionOps() { return kOps; }

}  // namespace millrace::models::graph
