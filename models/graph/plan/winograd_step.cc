// Convolutions of 3 x 3 by Winograd's way (models/cpu/winograd_kernels.h): 16
// products that multiply 2.25 times less, between additions. Tiles of all
// images of a batch are shared among the team as one range.
#include <algorithm>
#include <string>
#include <utility>

#include "models/cpu/winograd_kernels.h"
#include "models/graph/passes/fused.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

// Which layers are faster so. The weights are 1.8 times as large: of small
// images, where they are read for few pixels, that costs more than the products
// save. Decided for one image, so that a batch does not change its bits.
constexpr int64_t kFewestPixels = 14 * 14;
constexpr int64_t kFewestChannels = 32;

bool IsFaster(const ImageShape& s) {
  const Window& w = s.window;
  return w.kernel_h == 3 && w.kernel_w == 3 && w.stride_h == 1 &&
         w.stride_w == 1 && w.dilation_h == 1 && w.dilation_w == 1 &&
         w.pad_top <= 1 && w.pad_left <= 1 && s.out_pixels() >= kFewestPixels &&
         std::min(s.out_height, s.out_width) >= 2 * kWinogradTile &&
         std::min(s.channels, s.outputs) >= kFewestChannels;
}

int64_t CeilOf(int64_t n, int64_t d) { return (n + d - 1) / d; }

class WinogradStep : public Step {
 public:
  WinogradStep(const Node& node, const LowerContext& context,
               const ImageShape& shape, const float* packed)
      : products_(context.dense),
        kernels_(WinogradOf(context.dense.name)),
        num_members_(context.num_members),
        shape_(shape),
        tiles_across_(CeilOf(shape.out_width, kWinogradTile)),
        image_tiles_(tiles_across_ * CeilOf(shape.out_height, kWinogradTile)),
        ld_v_(LdOf(shape.channels)),
        ld_m_(LdOf(shape.outputs)),
        block_(BlockOf()),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        packed_(packed),
        epilogue_(node, context, shape.outputs) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const int64_t panels = CeilOf(shape_.outputs, products_.panel);
    const Part part = SplitProduct(shape_.batch * image_tiles_, panels, team,
                                   true, products_.costs);
    float* v =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberFloats();
    for (int64_t tile = part.row_begin; tile < part.row_end; tile += block_) {
      Block(slots, part, tile, std::min(tile + block_, part.row_end), v);
    }
    return OkStatus();
  }

  double macs() const override {
    return static_cast<double>(shape_.batch * image_tiles_ * kWinogradPlanes) *
           static_cast<double>(shape_.channels * shape_.outputs);
  }

  std::string Text() const override {
    return "Conv " + shape_.Text() + ", Winograd" + epilogue_.Text();
  }

 private:
  // Rows a line more than a multiple of 256 bytes apart: they do not fall on
  // each other in the cache. Planes, of which a tile has a row each, likewise.
  static int64_t LdOf(int64_t values) { return CeilOf(values, 64) * 64 + 16; }
  static int64_t PlaneOf(int64_t tiles, int64_t ld) {
    return CeilOf(tiles * ld, 1024) * 1024 + 64;
  }

  // Tiles whose planes stay in L2.
  int64_t BlockOf() const {
    constexpr int64_t kFloats = 256 * 1024;
    const int64_t unit = products_.costs.row_unit;
    const int64_t tiles = kFloats / (kWinogradPlanes * (ld_v_ + ld_m_));
    const int64_t all = shape_.batch * image_tiles_;
    const int64_t most = CeilOf(all, unit) * unit;
    return std::clamp(tiles / unit * unit, std::min(4 * unit, most), most);
  }
  int64_t MemberFloats() const {
    return kWinogradPlanes * (PlaneOf(block_, ld_v_) + PlaneOf(block_, ld_m_));
  }

  // Tiles [begin, end) of the batch.
  void Block(const Slots& slots, const Part& part, int64_t begin, int64_t end,
             float* v) const {
    const ImageShape& s = shape_;
    const int64_t plane_v = PlaneOf(block_, ld_v_);
    const int64_t plane_m = PlaneOf(block_, ld_m_);
    float* m = v + kWinogradPlanes * plane_v;
    ForEachItem(begin, end, image_tiles_,
                [&](int64_t image, int64_t first, int64_t last) {
                  const int64_t at = image * image_tiles_ + first - begin;
                  kernels_.input(
                      {.x = s.At(slots.data<float>(x_), image, 0, s.channels),
                       .pad_top = s.window.pad_top,
                       .pad_left = s.window.pad_left,
                       .tiles_across = tiles_across_,
                       .tile_begin = first,
                       .tile_end = last,
                       .v = v + at * ld_v_,
                       .plane = plane_v,
                       .ld_v = ld_v_});
                });
    const int64_t each = products_.packed_floats(s.outputs, s.channels);
    for (int64_t i = 0; i < kWinogradPlanes; ++i) {
      products_.gemm({.x = v + i * plane_v,
                      .ld_x = ld_v_,
                      .row_end = end - begin,
                      .w = packed_ + i * each,
                      .n = s.outputs,
                      .k = s.channels,
                      .panel_begin = part.panel_begin,
                      .panel_end = part.panel_end,
                      .y = m + i * plane_m,
                      .ld_y = ld_m_});
    }
    const Epilogue epilogue = epilogue_.At(slots);
    ForEachItem(
        begin, end, image_tiles_,
        [&](int64_t image, int64_t first, int64_t last) {
          const int64_t at = image * image_tiles_ + first - begin;
          const int64_t pixel = image * s.out_pixels();
          kernels_.output({.m = m + at * ld_m_,
                           .plane = plane_m,
                           .ld_m = ld_m_,
                           .tiles_across = tiles_across_,
                           .tile_begin = first,
                           .tile_end = last,
                           .out_height = s.out_height,
                           .out_width = s.out_width,
                           .output_begin = part.panel_begin * products_.panel,
                           .output_end = std::min(
                               part.panel_end * products_.panel, s.outputs),
                           .y = slots.data<float>(y_) + pixel * s.ld_y,
                           .ld_y = s.ld_y,
                           .epilogue = Moved(epilogue, pixel, 0)});
        });
  }

  const DenseTable& products_;
  const WinogradKernels kernels_;
  const int64_t num_members_;
  const ImageShape shape_;
  const int64_t tiles_across_;
  const int64_t image_tiles_;
  const int64_t ld_v_;
  const int64_t ld_m_;
  const int64_t block_;  // tiles at a time
  const Slot x_;
  const Slot y_;
  const float* const packed_;
  const StepEpilogue epilogue_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeWinogradStep(const Node& node,
                                                 const LowerContext& context) {
  const ImageShape shape = ImageShapeOf(node, context);
  if (ParamsOf<ConvParams>(node.attrs).groups != 1 ||
      &context.products(node) == context.bf16 ||
      context.is_bf16(node.inputs[0]) || context.is_bf16(node.outputs[0]) ||
      !IsFaster(shape)) {
    return std::unique_ptr<Step>();
  }
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const DenseTable& products = context.dense;
  const int64_t n = shape.outputs;
  const int64_t k = shape.channels;
  const int64_t each = products.packed_floats(n, k);
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.GetByParts(
          weight, {PackedForm::Kind::kWinograd}, kWinogradPlanes * each,
          [&](const Tensor& from, float* to, const Team& team) {
            const auto [begin, end] = team.Share(CeilOf(n, products.panel));
            std::vector<float> u(
                static_cast<size_t>(kWinogradPlanes * products.panel * k));
            for (int64_t panel = begin; panel < end; ++panel) {
              const int64_t row = panel * products.panel;
              const int64_t rows = std::min<int64_t>(products.panel, n - row);
              WinogradWeights(from.data<float>() + row * k * 9, rows, k,
                              u.data());
              for (int64_t i = 0; i < kWinogradPlanes; ++i) {
                products.pack(u.data() + i * rows * k, rows, k,
                              {.n = k, .k = 1}, 0, 1,
                              to + i * each + products.packed_floats(row, k));
              }
            }
          }));
  return std::unique_ptr<Step>(
      std::make_unique<WinogradStep>(node, context, shape, packed));
}

}  // namespace millrace::models::graph
