// Convolutions of bf16 in tiles.
//
//   1 x 1 kernels that skip nothing: rows of a product (dense_gemm.h).
//   Whole steps of channels: a band of the image is copied once with its
//   padding, and every tap reads it where it lies (image_planes.h).
//   Others: what each pixel sees is gathered into rows, a block at a time;
//   where channels are few a vector for each row of the kernel (short_taps.h).
//
// S is Bf16Factors. Written over a type `Tiles`. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/dense_gemm.h"
#include "models/cpu/kernels/amx/image_planes.h"
#include "models/cpu/kernels/amx/short_taps.h"
#include "models/cpu/kernels/dense/seen_by_pixels.h"

namespace millrace::models {
namespace {

template <class Tiles, class From>
class TileConv {
 public:
  // `data`: the image.
  static void Run(Tiles& tiles, const ConvArgs& a, const From* data) {
    if (PixelsAreRows(a)) {
      GemmArgs g = AsGemm(a);
      g.ld_x = a.x.ld_pixel;
      return DenseRows<Tiles>::Run(tiles, g, data);
    }
    const int64_t steps = Blocks::Steps(K(a));
    Blocks blocks(
        tiles,
        {.w = reinterpret_cast<const uint8_t*>(a.w),
         .bytes = steps * Blocks::kPanelStepBytes,
         .begin = a.panel_begin,
         .end = a.panel_end,
         .steps = steps},
        {.y = a.y,
         .y_bf16 = a.y_bf16,
         .ld_y = a.ld_y,
         .n = a.n,
         .epilogue = &a.epilogue,
         .far = AreFar(a.y_bf16, a.ld_y, a.pixel_end - a.pixel_begin, K(a))});
    if (ReadsPlanes(a)) {
      RunPlanes(blocks, a, data);
    } else {
      RunGathered(blocks, a, data);
    }
    blocks.End();
  }

  static int64_t ScratchFloats(const ConvArgs& a) {
    if (PixelsAreRows(a)) {
      GemmArgs g = AsGemm(a);
      g.row_end = Pixels(a);
      return DenseRows<Tiles>::ScratchFloats(g);
    }
    if (ReadsPlanes(a)) {
      const int64_t rows = BandRows(a);
      return ListFloats(a, rows) + (Planes::Values(a, rows) + Slack(a)) / 2;
    }
    const Window& w = a.window;
    int64_t bytes =
        DenseRows<Tiles>::BlockRows(K(a)) * DenseRows<Tiles>::LdBytes(K(a));
    if (Taps::Takes(w, a.x.channels)) {
      const int64_t taps =
          ShortBytes(a) + Taps::ScratchBytes(w, a.out_width, a.x.channels);
      if (bytes < taps) bytes = taps;
    }
    return bytes / 4;
  }

 private:
  using Blocks = DenseBlocks<Tiles>;
  using S = Bf16Factors;
  using Seen = SeenByPixels<S, From>;
  using Planes = ImagePlanes<S, From>;
  using Taps = ShortTaps<S, From, ConvArgs>;
  static constexpr int64_t kMostRuns = 64;

  static int64_t K(const ConvArgs& a) { return Seen::Values(a); }
  // More than there can be: how much there is below is not known here.
  static int64_t OutHeight(const ConvArgs& a) {
    return (a.x.height + 2 * a.window.pad_top + a.window.kernel_h) /
               a.window.stride_h +
           1;
  }
  static int64_t Pixels(const ConvArgs& a) {
    return OutHeight(a) * a.out_width;
  }
  static GemmArgs AsGemm(const ConvArgs& a) {
    return {.row_begin = a.pixel_begin,
            .row_end = a.pixel_end,
            .w = a.w,
            .n = a.n,
            .k = a.x.channels,
            .panel_begin = a.panel_begin,
            .panel_end = a.panel_end,
            .y = a.y,
            .y_bf16 = a.y_bf16,
            .ld_y = a.ld_y,
            .epilogue = a.epilogue,
            .scratch = a.scratch};
  }

  // ---- planes ----

  // Taps of a kernel row that see neighbouring pixels are one run.
  static bool RowsAreRuns(const ConvArgs& a) {
    return a.window.dilation_w == 1;
  }
  static bool ReadsPlanes(const ConvArgs& a) {
    const Window& w = a.window;
    const int64_t run =
        RowsAreRuns(a) ? w.kernel_w * a.x.channels : a.x.channels;
    return w.kernel_h * w.kernel_w > 1 && run % Blocks::kStep == 0 &&
           w.kernel_h * (RowsAreRuns(a) ? 1 : w.kernel_w) <= kMostRuns &&
           w.stride_w <= w.kernel_w;
  }
  // Output rows whose planes stay in L2.
  static int64_t BandRows(const ConvArgs& a) {
    constexpr int64_t kValues = 256 << 10;
    const int64_t row = Planes::Values(a, 2) - Planes::Values(a, 1);
    int64_t rows = (kValues - Planes::Values(a, 1)) / (row > 0 ? row : 1) + 1;
    if (rows > OutHeight(a)) rows = OutHeight(a);
    return rows < 1 ? 1 : rows;
  }
  // A last block reads as if all its rows were there.
  static int64_t Slack(const ConvArgs& a) {
    return Blocks::kRows * a.window.stride_w * a.x.channels;
  }
  static int64_t ListFloats(const ConvArgs& a, int64_t rows) {
    return (rows * Planes::Positions(a) + 15) / 16 * 16;
  }

  static void RunPlanes(Blocks& blocks, const ConvArgs& a, const From* data) {
    const int64_t band = BandRows(a);
    const Planes planes(a, band);
    auto* row_of = reinterpret_cast<int32_t*>(a.scratch);
    auto* values = reinterpret_cast<uint16_t*>(a.scratch + ListFloats(a, band));
    const Window& w = a.window;
    StepRun runs[kMostRuns];
    int64_t num_runs = 0;
    const int64_t taps = RowsAreRuns(a) ? 1 : w.kernel_w;
    const int64_t run_values = w.kernel_w / taps * a.x.channels;
    for (int64_t kh = 0; kh < w.kernel_h; ++kh) {
      for (int64_t kw = 0; kw < taps; ++kw) {
        runs[num_runs++] = {
            reinterpret_cast<const uint8_t*>(values + planes.At(kh, kw)),
            planes.ld() * 2, run_values / Blocks::kStep};
      }
    }
    for (int64_t pixel = a.pixel_begin; pixel < a.pixel_end;) {
      const int64_t row = pixel / a.out_width;
      const int64_t last = Smaller((row + band) * a.out_width, a.pixel_end);
      const int64_t row_end = (last - 1) / a.out_width + 1;
      // The list of the band before is still wanted.
      blocks.Finish();
      planes.Fill(data, row, row_end, values);
      // Positions of the pixels of this call.
      const int64_t p0 = pixel - row * a.out_width;
      const int64_t p1 = (row_end - 1 - row) * planes.positions() + last -
                         (row_end - 1) * a.out_width;
      int64_t column = p0;
      int64_t output = pixel;
      for (int64_t p = p0; p < p1; ++p) {
        row_of[p - p0] =
            column < a.out_width ? static_cast<int32_t>(output++) : -1;
        if (++column == planes.positions()) column = 0;
      }
      StepRun from[kMostRuns];
      StepRun rest[kMostRuns];
      const int64_t whole = (p1 - p0) / Blocks::kRows * Blocks::kRows;
      for (int64_t i = 0; i < num_runs; ++i) {
        from[i] = rest[i] = runs[i];
        from[i].at += p0 * runs[i].ld;
        rest[i].at += (p0 + whole) * runs[i].ld;
      }
      blocks.Multiply({.whole = {from, num_runs},
                       .num_whole = whole,
                       .rest = {rest, num_runs},
                       .num_rest = p1 - p0 - whole,
                       .row_of = row_of,
                       .overlap = w.kernel_w > 1});
      pixel = last;
    }
    blocks.Finish();
  }

  // ---- gathered rows ----

  // Rows that are gathered in a moment go through L1. They have a line to
  // spare, which vectors reach into, and are an odd number of lines long.
  static constexpr int64_t kShortRows = 2 * Blocks::kRows;
  static int64_t ShortLdBytes(const ConvArgs& a) {
    return ((Blocks::Steps(K(a)) + 1) | 1) * Blocks::kStepBytes;
  }
  static int64_t ShortBytes(const ConvArgs& a) {
    return kShortRows * ShortLdBytes(a);
  }

  static void RunGathered(Blocks& blocks, const ConvArgs& a, const From* data) {
    const int64_t k = K(a);
    const int64_t steps = Blocks::Steps(k);
    auto* rows = reinterpret_cast<uint8_t*>(a.scratch);
    auto* values = reinterpret_cast<uint16_t*>(rows);
    const bool is_short =
        Taps::Takes(a.window, a.x.channels) && Taps::IsDense(a);
    const int64_t each = is_short ? kShortRows : DenseRows<Tiles>::BlockRows(k);
    const int64_t ld =
        is_short ? ShortLdBytes(a) : DenseRows<Tiles>::LdBytes(k);
    Taps taps(a, data, rows + ShortBytes(a), steps * Blocks::kStep);
    if (is_short) {
      const int64_t most = Smaller(a.pixel_end - a.pixel_begin, each);
      taps.ClearEnds(most, values, ld / 2);
    }
    for (int64_t pixel = a.pixel_begin; pixel < a.pixel_end; pixel += each) {
      const int64_t pixels = Smaller(a.pixel_end - pixel, each);
      if (is_short) {
        taps.Gather(pixel, pixels, values, ld / 2);
      } else {
        Seen::Gather(a, data, pixel, pixels, 0, steps * Blocks::kStep, values,
                     ld / 2);
      }
      const int64_t whole = pixels / Blocks::kRows * Blocks::kRows;
      const StepRun from{rows, ld, steps};
      const StepRun rest{rows + whole * ld, ld, steps};
      blocks.Multiply({.whole = {&from, 1},
                       .num_whole = whole,
                       .rest = {&rest, 1},
                       .num_rest = pixels - whole,
                       .first = pixel});
    }
  }

  static int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

}  // namespace
}  // namespace millrace::models
