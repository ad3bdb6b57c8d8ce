// Sampling, boxes and columns of images, among them the operators of
// torchvision.
#include <string>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

void GridSample(Lowering& n) {
  constexpr const char* kModes[] = {"linear", "nearest", "cubic"};
  constexpr const char* kBorders[] = {"zeros", "border", "reflection"};
  const int64_t mode = n.Int("interpolation_mode", 0);
  const int64_t border = n.Int("padding_mode", 0);
  if (mode < 0 || mode > 2 || border < 0 || border > 2) {
    return n.Fail("a way of sampling that is not known");
  }
  n.Return(n.emit().Op(
      "GridSample", {n.In("input"), n.In("grid")},
      {{"mode", std::string(kModes[mode])},
       {"padding_mode", std::string(kBorders[border])},
       {"align_corners", int64_t{n.Flag("align_corners", false)}}}));
}

void AffineGrid(Lowering& n) {
  Emitter& e = n.emit();
  n.Return(e.Op("AffineGrid", {n.In("theta"), e.List(n.Numbers("size"))},
                {{"align_corners", int64_t{n.Flag("align_corners", false)}}}));
}

void Col2Im(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const auto pads = n.Ints("padding", 2, 0);
  const ValueId columns = x.rank() == 2 ? e.Unsqueeze(x.id, {0}) : x.id;
  const ValueId y =
      e.Op("Col2Im",
           {columns, e.List(n.Numbers("output_size")),
            e.Ints(n.Ints("kernel_size", 2, 1))},
           {{"dilations", n.Ints("dilation", 2, 1)},
            {"pads", std::vector<int64_t>{pads[0], pads[1], pads[0], pads[1]}},
            {"strides", n.Ints("stride", 2, 1)}});
  n.Return(x.rank() == 2 ? e.Squeeze(y, {0}) : y);
}

// The boxes that stay, best first: of [count, 4] and [count].
void Nms(Lowering& n) {
  Emitter& e = n.emit();
  const ValueId most = e.Ints({int64_t{1} << 40});
  const ValueId chosen = e.Op(
      "NonMaxSuppression",
      {e.Unsqueeze(n.In("dets"), {0}), e.Unsqueeze(n.In("scores"), {0, 1}),
       most,
       e.Unsqueeze(e.Number(n.Real("iou_threshold", 0.5), DType::kF32), {0})});
  n.Return(e.Op("Gather", {chosen, e.Integer(2, DType::kI64)},
                {{"axis", int64_t{1}}}));
}

// rois [count, 5]: the image's number, then the box. Of `own` each cell has
// channels of its own.
void Align(Lowering& n, bool half_pixel, bool own) {
  const Operand rois = n.Arg("rois");
  Emitter& e = n.emit();
  const ValueId boxes = e.Slice(rois.id, 1, Num::Of(1), Num::Of(5), Num::Of(1));
  const ValueId image =
      e.Cast(e.Op("Gather", {rois.id, e.Integer(0, DType::kI64)},
                  {{"axis", int64_t{1}}}),
             rois.dtype(), DType::kI64);
  const int64_t ratio = n.Int("sampling_ratio", -1);
  Attrs attrs = {
      {"mode", std::string("avg")},
      {"output_height", n.Int("pooled_height", 1)},
      {"output_width", n.Int("pooled_width", 1)},
      {"spatial_scale", n.Real("spatial_scale", 1)},
      {"sampling_ratio", ratio < 0 ? int64_t{0} : ratio},
      {"coordinate_transformation_mode",
       std::string(half_pixel ? "half_pixel" : "output_half_pixel")}};
  if (own) attrs.Set("own_channels", int64_t{1});
  n.Return(e.Op("RoiAlign", {n.In("input"), boxes, image}, std::move(attrs)));
}

void RoiAlign(Lowering& n) { Align(n, n.Flag("aligned", false), false); }

void PsRoiAlign(Lowering& n) { Align(n, true, true); }

void Pool(Lowering& n, const char* op) {
  n.Return(n.emit().Op(
      op, {n.In("input"), n.In("rois")},
      {{"pooled_shape", std::vector<int64_t>{n.Int("pooled_height", 1),
                                             n.Int("pooled_width", 1)}},
       {"spatial_scale", n.Real("spatial_scale", 1)}}));
}

void RoiPool(Lowering& n) { Pool(n, "MaxRoiPool"); }

void PsRoiPool(Lowering& n) { Pool(n, "PsRoiPool"); }

void DeformConv(Lowering& n) {
  const int64_t ph = n.Int("pad_h", 0);
  const int64_t pw = n.Int("pad_w", 0);
  const bool masked = n.Flag("use_mask", true);
  n.Return(n.emit().Op(
      "DeformConv",
      {n.In("input"), n.In("weight"), n.In("offset"), n.InOrNone("bias"),
       masked ? n.InOrNone("mask") : kNoValue},
      {{"strides",
        std::vector<int64_t>{n.Int("stride_h", 1), n.Int("stride_w", 1)}},
       {"pads", std::vector<int64_t>{ph, pw, ph, pw}},
       {"dilations",
        std::vector<int64_t>{n.Int("dilation_h", 1), n.Int("dilation_w", 1)}},
       {"group", n.Int("groups", 1)},
       {"offset_group", n.Int("offset_groups", 1)}}));
}

constexpr AtenOp kRows[] = {
    {"aten.grid_sampler.default", GridSample},
    {"aten.grid_sampler_2d.default", GridSample},
    {"aten.grid_sampler_3d.default", GridSample},
    {"aten.affine_grid_generator.default", AffineGrid},
    {"aten.col2im.default", Col2Im},
    {"torchvision.nms.default", Nms},
    {"torchvision.ps_roi_align.default", PsRoiAlign},
    {"torchvision.ps_roi_pool.default", PsRoiPool},
    {"torchvision.roi_align.default", RoiAlign},
    {"torchvision.roi_pool.default", RoiPool},
    {"torchvision.deform_conv2d.default", DeformConv},
};

}  // namespace

std::span<const AtenOp> VisionRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
