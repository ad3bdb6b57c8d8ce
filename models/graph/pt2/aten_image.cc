// Borders, other sizes and other orders of pixels.
#include <algorithm>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// PyTorch lists pads from the last axis on, in pairs.
void PadBy(Lowering& n, const char* mode, const Num& value) {
  const Operand x = n.Arg("self");
  const char* name = n.Has("pad") ? "pad" : "padding";
  const std::vector<Num> pads = n.Numbers(name);
  const auto axes = static_cast<int64_t>(pads.size() / 2);
  Emitter& e = n.emit();
  if (pads.size() % 2 != 0 || axes > x.rank()) {
    return n.Fail("pads do not fit the tensor");
  }
  if (std::all_of(pads.begin(), pads.end(),
                  [](const Num& pad) { return pad.Is(0); })) {
    return n.Return(x.id);
  }
  std::vector<int64_t> padded;
  std::vector<Num> begins;
  std::vector<Num> ends;
  for (int64_t i = 0; i < axes; ++i) {
    padded.push_back(x.rank() - 1 - i);
    begins.push_back(pads[static_cast<size_t>(2 * i)]);
    ends.push_back(pads[static_cast<size_t>(2 * i + 1)]);
  }
  begins.insert(begins.end(), ends.begin(), ends.end());
  n.Return(e.Op(
      "Pad", {x.id, e.List(begins), e.Value(value, x.dtype()), e.Ints(padded)},
      {{"mode", std::string(mode)}}));
}

void Pad(Lowering& n) {
  const std::string_view mode = n.Text("mode", "constant");
  const char* onnx = mode == "constant"    ? "constant"
                     : mode == "reflect"   ? "reflect"
                     : mode == "replicate" ? "edge"
                     : mode == "circular"  ? "wrap"
                                           : nullptr;
  if (onnx == nullptr) return n.Fail("padding of mode " + std::string(mode));
  PadBy(n, onnx, n.Number("value", Num::Of(0)));
}
void ConstantPad(Lowering& n) {
  PadBy(n, "constant", n.Number("value", Num::Of(0)));
}
void ReflectionPad(Lowering& n) { PadBy(n, "reflect", Num::Of(0)); }
void ReplicationPad(Lowering& n) { PadBy(n, "edge", Num::Of(0)); }

// Scales as one list or one argument for each axis.
std::vector<double> Scales(Lowering& n, size_t space) {
  std::vector<double> scales;
  for (const Num& scale : n.Numbers("scale_factors")) {
    if (!scale.known()) n.Fail("scale factors that the graph computes");
    scales.push_back(scale.AsReal());
  }
  for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"}) {
    if (n.Has(name)) scales.push_back(n.Real(name, 1));
  }
  if (scales.size() != space) scales.clear();
  return scales;
}

// As PyTorch's scales are, by which it computes sizes: 100 times 0.29 is less
// than 29, but not in FP32.
ValueId Doubles(Emitter& e, const std::vector<double>& values) {
  return e.Constant(Tensor::From<double>(
      DType::kF64, {static_cast<int64_t>(values.size())}, values));
}

// The size that PyTorch makes of a scale.
Num Scaled(Lowering& n, const Operand& x, int64_t axis, double scale) {
  Emitter& e = n.emit();
  const ValueId exact = e.Op("Mul", {e.Value(n.Size(x, axis), DType::kF64),
                                     e.Number(scale, DType::kF64)});
  return {.id = e.Cast(e.Op("Floor", {exact}), DType::kF64, DType::kI64)};
}

void Resize(Lowering& n, size_t space, Attrs attrs) {
  const Operand x = n.Arg(n.Has("input") ? "input" : "self");
  Emitter& e = n.emit();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < space; ++i)
    axes.push_back(2 + static_cast<int64_t>(i));
  attrs.Set("axes", axes);
  std::vector<Num> sizes = n.Numbers("output_size");
  std::vector<double> scales = Scales(n, space);
  // Between corners the sizes alone say where to look.
  if (attrs.Text("coordinate_transformation_mode", "") == "align_corners") {
    for (size_t i = 0; i < space && sizes.size() < scales.size(); ++i) {
      sizes.push_back(
          Scaled(n, x, 2 + static_cast<int64_t>(sizes.size()), scales[i]));
    }
    scales.clear();
  }
  // With both, the scales say where to look and the sizes how far: they agree
  // whenever sizes were computed from scales.
  if (!scales.empty()) {
    return n.Return(
        e.Op("Resize", {x.id, kNoValue, Doubles(e, scales)}, std::move(attrs)));
  }
  if (sizes.size() != space) return n.Fail("neither sizes nor scales");
  n.Return(e.Op("Resize", {x.id, kNoValue, kNoValue, e.List(sizes)},
                std::move(attrs)));
}

template <size_t kSpace>
void Nearest(Lowering& n) {
  Resize(n, kSpace,
         {{"mode", std::string("nearest")},
          {"coordinate_transformation_mode", std::string("asymmetric")},
          {"nearest_mode", std::string("floor")}});
}

template <size_t kSpace>
void NearestExact(Lowering& n) {
  Resize(n, kSpace,
         {{"mode", std::string("nearest")},
          {"coordinate_transformation_mode", std::string("half_pixel")},
          {"nearest_mode", std::string("round_prefer_ceil")}});
}

Attrs Interpolated(Lowering& n, const char* mode) {
  return {{"mode", std::string(mode)},
          {"coordinate_transformation_mode",
           std::string(n.Flag("align_corners", false) ? "align_corners"
                                                      : "half_pixel")},
          {"cubic_coeff_a", -0.75}};
}
template <size_t kSpace>
void Linear(Lowering& n) {
  Resize(n, kSpace, Interpolated(n, "linear"));
}
void Cubic(Lowering& n) { Resize(n, 2, Interpolated(n, "cubic")); }
template <bool kCubic>
void Antialiased(Lowering& n) {
  if (n.Flag("align_corners", false)) {
    return n.Fail("antialias with align_corners");
  }
  Attrs attrs = Interpolated(n, kCubic ? "cubic" : "linear");
  // Neighbours beyond the edge do not count.
  attrs.Set("antialias", int64_t{1});
  attrs.Set("exclude_outside", int64_t{1});
  attrs.Set("cubic_coeff_a", -0.5);
  Resize(n, 2, std::move(attrs));
}

// [.., c·r·r, h, w] and [.., c, h·r, w·r].
void PixelShuffle(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t r = n.Int("upscale_factor", 1);
  if (x.rank() != 4 || r < 1) return n.Fail("an operand of rank 4 is needed");
  n.Return(n.emit().Op("DepthToSpace", {x.id},
                       {{"blocksize", r}, {"mode", std::string("CRD")}}));
}

void PixelUnshuffle(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t r = n.Int("downscale_factor", 1);
  if (x.rank() != 4 || r < 1) return n.Fail("an operand of rank 4 is needed");
  Emitter& e = n.emit();
  const Num by = Num::Of(r);
  const Num c = n.Size(x, 1);
  const Num h = e.FloorDiv(n.Size(x, 2), by);
  const Num w = e.FloorDiv(n.Size(x, 3), by);
  const ValueId cut = e.Reshape(x.id, {n.Size(x, 0), c, h, by, w, by});
  n.Return(e.Reshape(e.Transpose(cut, {0, 1, 3, 5, 2, 4}),
                     {n.Size(x, 0), e.Mul(c, Num::Of(r * r)), h, w}));
}

void ChannelShuffle(Lowering& n) {
  const Operand x = n.Arg("self");
  const Num groups = n.Number("groups");
  if (x.rank() < 3) return n.Fail("an operand of rank 3 is needed");
  Emitter& e = n.emit();
  const std::vector<Num> sizes = n.Sizes(x);
  std::vector<Num> cut = {sizes[0], groups, e.FloorDiv(sizes[1], groups)};
  std::vector<int64_t> order = {0, 2, 1};
  for (size_t i = 2; i < sizes.size(); ++i) {
    cut.push_back(sizes[i]);
    order.push_back(static_cast<int64_t>(i) + 1);
  }
  n.Return(e.Reshape(e.Transpose(e.Reshape(x.id, cut), order), sizes));
}

constexpr AtenOp kRows[] = {
    {"aten.pad.default", Pad},
    {"aten.constant_pad_nd.default", ConstantPad},
    {"aten.reflection_pad1d.default", ReflectionPad},
    {"aten.reflection_pad2d.default", ReflectionPad},
    {"aten.reflection_pad3d.default", ReflectionPad},
    {"aten.replication_pad1d.default", ReplicationPad},
    {"aten.replication_pad3d.default", ReplicationPad},
    {"aten.replication_pad2d.default", ReplicationPad},
    {"aten.upsample_nearest1d.vec", Nearest<1>},
    {"aten.upsample_nearest2d.vec", Nearest<2>},
    {"aten.upsample_nearest3d.vec", Nearest<3>},
    {"aten.upsample_nearest1d.default", Nearest<1>},
    {"aten.upsample_nearest2d.default", Nearest<2>},
    {"aten.upsample_nearest3d.default", Nearest<3>},
    {"aten._upsample_nearest_exact1d.vec", NearestExact<1>},
    {"aten._upsample_nearest_exact1d.default", NearestExact<1>},
    {"aten._upsample_nearest_exact3d.vec", NearestExact<3>},
    {"aten._upsample_nearest_exact3d.default", NearestExact<3>},
    {"aten._upsample_nearest_exact2d.vec", NearestExact<2>},
    {"aten._upsample_nearest_exact2d.default", NearestExact<2>},
    {"aten.upsample_linear1d.vec", Linear<1>},
    {"aten.upsample_linear1d.default", Linear<1>},
    {"aten.upsample_bilinear2d.vec", Linear<2>},
    {"aten.upsample_bilinear2d.default", Linear<2>},
    {"aten.upsample_trilinear3d.vec", Linear<3>},
    {"aten.upsample_trilinear3d.default", Linear<3>},
    {"aten.upsample_bicubic2d.vec", Cubic},
    {"aten.upsample_bicubic2d.default", Cubic},
    {"aten._upsample_bilinear2d_aa.vec", Antialiased<false>},
    {"aten._upsample_bilinear2d_aa.default", Antialiased<false>},
    {"aten._upsample_bicubic2d_aa.vec", Antialiased<true>},
    {"aten._upsample_bicubic2d_aa.default", Antialiased<true>},
    {"aten.pixel_shuffle.default", PixelShuffle},
    {"aten.pixel_unshuffle.default", PixelUnshuffle},
    {"aten.channel_shuffle.default", ChannelShuffle},
};

}  // namespace

std::span<const AtenOp> ImageRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
