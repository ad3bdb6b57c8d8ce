#include "models/graph/plan/onednn_cut.h"

#include <algorithm>
#include <utility>

#include "models/graph/passes/fused.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/onednn_layers.h"

namespace millrace::models::graph {
namespace {

using onednn::Kind;
using onednn::LayerSizes;

// ---- products ----
// The height whose tiles the members finish first; lower ones read the weight
// more often.
int64_t TileRows(int64_t rows, int64_t members) {
  int64_t best = kTileRows[0];
  double least = 0;
  for (const auto& [height, cost] :
       {std::pair<int64_t, double>{64, 1}, {32, 1.05}, {16, 1.15}}) {
    const int64_t tiles = (rows + height - 1) / height;
    const int64_t each = (tiles + members - 1) / members;
    const double takes = static_cast<double>(each * height) * cost;
    if (least == 0 || takes < least) {
      least = takes;
      best = height;
    }
  }
  return best;
}

bool CutProduct(OneDnnLayers& layers, int64_t rows, int64_t members,
                OneDnnCalls& calls) {
  const LayerSizes& s = calls.sizes;
  const ProductTiles* tiles = layers.FindProduct(s);
  if (tiles == nullptr) return false;
  const int64_t most = TileRows(rows, members);
  size_t i = 0;
  while (kTileRows[i] > most) ++i;
  for (int64_t row = 0; row < rows;) {
    while (kTileRows[i] > rows - row) ++i;
    const int64_t height = kTileRows[i];
    calls.parts.push_back(
        {(*tiles)[i].get(), row * s.k, height * s.k, row * s.n, height * s.n});
    row += height;
  }
  calls.macs = static_cast<double>(rows) * static_cast<double>(s.n * s.k);
  return true;
}

// ---- convolutions ----
// Of one image: a power of two, so that teams share them evenly, and few enough
// that reading the weight for each costs little. It depends on the image alone.
int64_t NumBands(const LayerSizes& s) {
  const int64_t pixels = s.out_height * s.out_width;
  const int64_t macs = pixels * s.outputs * s.kernel_h * s.kernel_w *
                       (s.channels / std::max<int64_t>(s.groups, 1));
  const int64_t by_work =
      std::max(macs / (int64_t{2} << 20), pixels * s.outputs / (32 << 10));
  const int64_t by_pixels =
      pixels >= 48 ? std::max<int64_t>(pixels / 48, 2) : 1;
  const int64_t most = std::min({by_work, by_pixels, s.out_height, int64_t{8}});
  int64_t bands = 1;
  while (bands * 2 <= most) bands *= 2;
  return bands;
}

// Output rows [begin, end) and the input rows that they read.
LayerSizes Band(const LayerSizes& s, int64_t begin, int64_t end,
                int64_t* first_row) {
  const int64_t reach = (s.kernel_h - 1) * s.dilation_h + 1;
  const int64_t from = begin * s.stride_h - s.pad_top;
  const int64_t to = (end - 1) * s.stride_h - s.pad_top + reach;
  LayerSizes band = s;
  *first_row = std::clamp<int64_t>(from, 0, s.height);
  const int64_t last_row = std::clamp<int64_t>(to, *first_row, s.height);
  band.height = last_row - *first_row;
  band.out_height = end - begin;
  band.pad_top = *first_row - from;
  band.pad_bottom = to - last_row;
  return band;
}

bool CutConvolution(OneDnnLayers& layers, int64_t batch, OneDnnCalls& calls) {
  const LayerSizes& s = calls.sizes;
  const int64_t num_bands = NumBands(s);
  std::vector<OneDnnCall> bands;
  for (int64_t i = 0; i < num_bands; ++i) {
    const int64_t begin = i * s.out_height / num_bands;
    const int64_t end = (i + 1) * s.out_height / num_bands;
    int64_t first_row = 0;
    const LayerSizes band = Band(s, begin, end, &first_row);
    if (band.height == 0) return false;  // reads nothing but padding
    const onednn::Layer* layer = layers.FindConvolution(
        band, bands.empty() ? nullptr : bands.front().layer);
    if (layer == nullptr) return false;
    const int64_t x_row = s.width * s.channels;
    const int64_t y_row = s.out_width * s.outputs;
    bands.push_back({layer, first_row * x_row, band.height * x_row,
                     begin * y_row, band.out_height * y_row});
  }
  for (int64_t image = 0; image < batch; ++image) {
    for (OneDnnCall part : bands) {
      part.x_at += image * s.height * s.width * s.channels;
      part.y_at += image * s.out_height * s.out_width * s.outputs;
      calls.parts.push_back(part);
    }
  }
  calls.macs = static_cast<double>(batch * s.out_height * s.out_width) *
               static_cast<double>(s.outputs * s.kernel_h * s.kernel_w *
                                   (s.channels / s.groups));
  return true;
}

// A signal is an image of one column rather than of one row, so that it can be
// cut into bands.
void StandUpright(LayerSizes& s) {
  if (s.height != 1 || s.out_height != 1 || s.kernel_h != 1 || s.pad_top != 0) {
    return;
  }
  std::swap(s.height, s.width);
  std::swap(s.out_height, s.out_width);
  std::swap(s.kernel_h, s.kernel_w);
  std::swap(s.stride_h, s.stride_w);
  std::swap(s.dilation_h, s.dilation_w);
  std::swap(s.pad_top, s.pad_left);
  std::swap(s.pad_bottom, s.pad_right);
}

void SetImage(const ImageShape& shape, int64_t groups, LayerSizes& s) {
  const Window& w = shape.window;
  s.kind = Kind::kConvolution;
  s.height = shape.height;
  s.width = shape.width;
  s.channels = shape.channels;
  s.out_height = shape.out_height;
  s.out_width = shape.out_width;
  s.outputs = shape.outputs;
  s.groups = groups;
  s.kernel_h = w.kernel_h;
  s.kernel_w = w.kernel_w;
  s.stride_h = w.stride_h;
  s.stride_w = w.stride_w;
  s.dilation_h = w.dilation_h;
  s.dilation_w = w.dilation_w;
  s.pad_top = w.pad_top;
  s.pad_left = w.pad_left;
  // Pixels at the end that no kernel reaches are no padding.
  const auto behind = [](int64_t out, int64_t stride, int64_t kernel,
                         int64_t dilation, int64_t before, int64_t in) {
    return std::max<int64_t>(
        (out - 1) * stride + (kernel - 1) * dilation + 1 - before - in, 0);
  };
  s.pad_bottom = behind(s.out_height, s.stride_h, s.kernel_h, s.dilation_h,
                        s.pad_top, s.height);
  s.pad_right = behind(s.out_width, s.stride_w, s.kernel_w, s.dilation_w,
                       s.pad_left, s.width);
  StandUpright(s);
}

ValueId Operand(const Node& node, size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : kNoValue;
}

}  // namespace

std::optional<OneDnnCalls> CutForOneDnn(const Node& node,
                                        const LowerContext& context,
                                        LayerSizes sizes) {
  const auto is_dense = [&](ValueId id) {
    return id == kNoValue || (context.place(id).storage == kNoValue &&
                              context.shape(id).num_elements() > 0);
  };
  if (!is_dense(node.inputs[0]) || !is_dense(node.outputs[0]) ||
      !is_dense(Operand(node, fused::kResidual)) ||
      !is_dense(Operand(node, fused::kGate))) {
    return std::nullopt;
  }
  OneDnnCalls calls;
  const Shape& y = context.shape(node.outputs[0]);
  if (node.op == &fused::kLinear || node.op == &fused::kByteLinear) {
    sizes.k = context.shape(node.inputs[0]).back();
    sizes.n = y.back();
    calls.sizes = sizes;
    if (!context.onednn->Serves(ShapeText(sizes)) ||
        !CutProduct(*context.onednn, y.num_elements() / y.back(),
                    context.num_members, calls)) {
      return std::nullopt;
    }
    return calls;
  }
  const ImageShape shape = ImageShapeOf(node, context);
  SetImage(shape, GroupsOf(node.attrs), sizes);
  calls.sizes = sizes;
  if (!context.onednn->Serves(ShapeText(sizes)) ||
      !CutConvolution(*context.onednn, shape.batch, calls)) {
    return std::nullopt;
  }
  return calls;
}

}  // namespace millrace::models::graph
