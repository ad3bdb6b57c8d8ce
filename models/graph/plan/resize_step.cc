// Resized channels-last images: each pixel of the result is a weighted sum of
// pixels, of floats or of bytes, or a copy of one, which may stay in bf16.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/ops/resize.h"
#include "models/graph/passes/copied_pixels.h"
#include "models/graph/passes/fused.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

// What makes one row, or one column, of the result.
struct Mixed {
  std::vector<int64_t> index;
  std::vector<float> weight;
  bool outside = false;
};

std::vector<Mixed> MixesOf(const std::vector<ResizeAxis>& axes, int which,
                           int64_t size) {
  const auto found =
      std::find_if(axes.begin(), axes.end(),
                   [&](const ResizeAxis& axis) { return axis.axis == which; });
  std::vector<Mixed> mixes(static_cast<size_t>(size));
  for (size_t o = 0; o < mixes.size(); ++o) {
    if (found == axes.end()) {
      mixes[o] = {{static_cast<int64_t>(o)}, {1.0f}, false};
      continue;
    }
    mixes[o].outside = found->outside[o];
    const auto taps = static_cast<size_t>(found->taps);
    for (size_t t = o * taps; t < (o + 1) * taps; ++t) {
      const auto weight = static_cast<float>(found->weight[t]);
      if (weight == 0 && taps > 1) continue;
      mixes[o].index.push_back(found->index[t]);
      mixes[o].weight.push_back(weight);
    }
  }
  return mixes;
}

class ResizeStep : public Step {
 public:
  ResizeStep(const Node& node, const LowerContext& context,
             const std::vector<ResizeAxis>& axes)
      : mix_(context.dense.mix),
        mix_bytes_(context.int8.mix),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        of_bf16_(context.is_bf16(node.inputs[0])),
        is_bytes_(context.type(node.inputs[0]).dtype == DType::kU8),
        x_scale_(ParamsOf<ResizeParams>(node.attrs).x),
        y_scale_(ParamsOf<ResizeParams>(node.attrs).y),
        round_(context.rounding(node.outputs[0])),
        in_(context.shape(node.inputs[0])),
        out_(context.shape(node.outputs[0])),
        ld_x_(context.distance(node.inputs[0])),
        ld_y_(context.distance(node.outputs[0])),
        rows_(MixesOf(axes, 2, out_[1])),
        columns_(MixesOf(axes, 3, out_[2])),
        pixel_bytes_(CopiedBytes(node, context)),
        beyond_(static_cast<float>(node.attrs.Float("extrapolation_value", 0))),
        num_members_(context.num_members),
        most_(MostOf(rows_) * MostOf(columns_)) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch();
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const int64_t channels = out_[3];
    const auto [begin, end] = team.Share(out_[0] * out_[1]);
    if (pixel_bytes_ > 0) {
      Copies(slots, begin, end);
      return OkStatus();
    }
    std::byte* scratch = slots.scratch + team.index * MemberScratch();
    if (is_bytes_) {
      MixBytes(slots, begin, end, scratch);
      return OkStatus();
    }
    const auto from = reinterpret_cast<const float**>(scratch);
    const auto weights =
        reinterpret_cast<float*>(scratch + most_ * int64_t{sizeof(float*)});
    float* const pixel = weights + most_;
    for (int64_t at = begin; at < end; ++at) {
      const float* image =
          slots.data<float>(x_) + at / out_[1] * in_[1] * in_[2] * ld_x_;
      const Mixed& row = rows_[static_cast<size_t>(at % out_[1])];
      int64_t place = at * out_[2] * ld_y_;
      for (const Mixed& column : columns_) {
        float* y = round_ == nullptr ? slots.data<float>(y_) + place : pixel;
        if (row.outside || column.outside) {
          std::fill_n(y, channels, beyond_);
        } else {
          int64_t count = 0;
          for (size_t i = 0; i < row.index.size(); ++i) {
            for (size_t j = 0; j < column.index.size(); ++j, ++count) {
              from[count] =
                  image + (row.index[i] * in_[2] + column.index[j]) * ld_x_;
              weights[count] = row.weight[i] * column.weight[j];
            }
          }
          if (count == 1 && weights[0] == 1.0f) {
            std::copy_n(from[0], channels, y);
          } else {
            mix_(from, weights, count, channels, y);
          }
        }
        if (round_ != nullptr) {
          round_(y, channels, slots.data<Bf16>(y_) + place);
        }
        place += ld_y_;
      }
    }
    return OkStatus();
  }

  std::string Text() const override {
    return "Resize " + in_.ToString() + " -> " + out_.ToString() +
           Bf16Text(of_bf16_, round_ != nullptr) + (is_bytes_ ? " UINT8" : "");
  }

 private:
  static int64_t CopiedBytes(const Node& node, const LowerContext& context) {
    const ValueType& x = context.type(node.inputs[0]);
    const ValueType& y = context.type(node.outputs[0]);
    return CopiesPixels(node) && x.dtype == y.dtype
               ? y.shape.back() * DTypeBytes(y.dtype)
               : 0;
  }
  // Rows [begin, end) of the result, each pixel a copy; so are whole rows.
  void Copies(const Slots& slots, int64_t begin, int64_t end) const {
    const int64_t from_step = pixel_bytes_ / out_[3] * ld_x_;
    const int64_t to_step = pixel_bytes_ / out_[3] * ld_y_;
    const int64_t row_bytes = out_[2] * to_step;
    std::byte* y = slots.data<std::byte>(y_) + begin * row_bytes;
    int64_t last = -1;
    for (int64_t at = begin; at < end; ++at, y += row_bytes) {
      const Mixed& row = rows_[static_cast<size_t>(at % out_[1])];
      const int64_t source = at / out_[1] * in_[1] + row.index[0];
      if (source == last && to_step == pixel_bytes_) {
        std::memcpy(y, y - row_bytes, static_cast<size_t>(row_bytes));
        continue;
      }
      last = source;
      const std::byte* from =
          slots.data<std::byte>(x_) + source * in_[2] * from_step;
      std::byte* to = y;
      for (const Mixed& column : columns_) {
        CopyPixel(from + column.index[0] * from_step, to);
        to += to_step;
      }
    }
  }
  // Too few bytes, mostly, for a call.
  void CopyPixel(const std::byte* from, std::byte* to) const {
    constexpr int64_t kPiece = 16;
    int64_t at = 0;
    for (; at + kPiece <= pixel_bytes_; at += kPiece) {
      std::memcpy(to + at, from + at, kPiece);
    }
    for (; at < pixel_bytes_; ++at) to[at] = from[at];
  }

  // Rows [begin, end) of the result, each pixel a sum.
  void MixBytes(const Slots& slots, int64_t begin, int64_t end,
                std::byte* scratch) const {
    const int64_t channels = out_[3];
    const auto from = reinterpret_cast<const uint8_t**>(scratch);
    const auto weights =
        reinterpret_cast<float*>(scratch + most_ * int64_t{sizeof(float*)});
    Int8MixArgs args{.from = from,
                     .weight = weights,
                     .n = channels,
                     .x_zero = x_scale_.zero,
                     .scale = x_scale_.scale / y_scale_.scale,
                     .y_zero = y_scale_.zero,
                     .y = slots.data<uint8_t>(y_) + begin * out_[2] * ld_y_};
    for (int64_t at = begin; at < end; ++at) {
      const uint8_t* image =
          slots.data<uint8_t>(x_) + at / out_[1] * in_[1] * in_[2] * ld_x_;
      const Mixed& row = rows_[static_cast<size_t>(at % out_[1])];
      for (const Mixed& column : columns_) {
        args.count = 0;
        for (size_t i = 0; i < row.index.size(); ++i) {
          for (size_t j = 0; j < column.index.size(); ++j, ++args.count) {
            from[args.count] =
                image + (row.index[i] * in_[2] + column.index[j]) * ld_x_;
            weights[args.count] = row.weight[i] * column.weight[j];
          }
        }
        mix_bytes_(args);
        args.y += ld_y_;
      }
    }
  }

  static int64_t MostOf(const std::vector<Mixed>& mixes) {
    size_t most = 1;
    for (const Mixed& mixed : mixes) {
      most = std::max(most, mixed.index.size());
    }
    return static_cast<int64_t>(most);
  }
  // Places and weights of one pixel's operands, and the pixel to be rounded.
  int64_t MemberScratch() const {
    const int64_t pixel = round_ == nullptr ? 0 : out_[3];
    return (most_ * int64_t{sizeof(float*) + sizeof(float)} + pixel * 4 + 63) /
           64 * 64;
  }

  void (*const mix_)(const float* const*, const float*, int64_t, int64_t,
                     float*);
  void (*const mix_bytes_)(const Int8MixArgs&);
  const Slot x_;
  const Slot y_;
  const bool of_bf16_;
  const bool is_bytes_;
  const ByteScale x_scale_;
  const ByteScale y_scale_;
  const Rounding round_;
  const Shape in_;
  const Shape out_;
  const int64_t ld_x_;
  const int64_t ld_y_;
  const std::vector<Mixed> rows_;
  const std::vector<Mixed> columns_;
  const int64_t pixel_bytes_;  // 0 where pixels are no plain copies
  const float beyond_;
  const int64_t num_members_;
  const int64_t most_;  // operands of a pixel
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeResizeStep(const Node& node,
                                               const LowerContext& context) {
  // The call that the attributes are about: channels first.
  const Shape& x = context.shape(node.inputs[0]);
  std::vector<Arg> args = {
      {.given = true, .shape = {x[0], x[3], x[1], x[2]}, .bytes = nullptr}};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    Arg& arg = args.emplace_back();
    if (node.inputs[i] == kNoValue) continue;
    const Tensor& constant = *context.constant(node.inputs[i]);
    arg = {.given = true,
           .dtype = constant.dtype(),
           .shape = constant.shape(),
           .bytes = constant.bytes()};
  }
  const Call call{node, args};
  ASSIGN_OR_RETURN(const ResizePlan plan, PlanResize(call));
  ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes, ResizeAxes(call, plan));
  return std::unique_ptr<Step>(
      std::make_unique<ResizeStep>(node, context, axes));
}

}  // namespace millrace::models::graph
