// Convolutions and linear layers of bytes in tiles. See int8_gemm.h.
//
//   1 x 1 kernels that skip nothing: rows are pixels where they lie.
//   Rows of a kernel that fill steps, or nearly: a band of the image is copied
//   once with its padding, and every tap reads it where it lies
//   (image_planes.h). What fills a last step are weights of zero.
//   Others: what pixels see is gathered into rows; where channels are few a
//   vector for each row of the kernel (short_taps.h).
//
// S is what kernels/dense_int8/gemm.h says, of 16 lanes. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/image_planes.h"
#include "models/cpu/kernels/amx/int8_gemm.h"
#include "models/cpu/kernels/amx/short_taps.h"
#include "models/cpu/kernels/dense_int8/gather.h"
#include "models/cpu/kernels/dense_int8/gemm.h"

namespace millrace::models {
namespace {

template <class S, class Tiles>
class Int8TileConv {
 public:
  using Gemm = Int8TileGemm<S, Tiles>;
  using Panels = Int8Panels<S>;

  // Whether a layer is multiplied in tiles; others keep the vectors' packing.
  static bool Takes(int64_t n, const Window& w, int64_t channels) {
    return n >= kFewestOutputs && K(w, channels) >= kShortestK;
  }

  static int64_t PackedBytes(const int8_t* w, int64_t n, const Window& window,
                             int64_t channels) {
    return Panels::PackedBytes(w, n, Order(window, channels));
  }
  static void Pack(const int8_t* w, int64_t n, const Window& window,
                   int64_t channels, int8_t* packed) {
    Panels::Pack(w, n, Order(window, channels), packed);
  }

  static int64_t ScratchBytes(const Window& w, int64_t out_width,
                              int64_t channels) {
    if (ReadsPlanes(w, channels)) {
      const Int8ConvArgs a = SizesOf(w, out_width, channels);
      return PlaneBytes(a) + ListBytes(a);
    }
    const int64_t filled = Order(w, channels).filled;
    const int64_t few = MostRows(filled, 0);
    const int64_t many = MostRows(filled, INT64_MAX);
    return (few > many ? few : many) * LdRow(filled) +
           (Taps::Takes(w, channels)
                ? Taps::ScratchBytes(w, out_width, channels)
                : 0);
  }

  static void Run(Tiles& tiles, const Int8ConvArgs& a) {
    if (a.pixel_begin >= a.pixel_end) return;
    if (ReadsPlanes(a.window, a.x.channels)) return RunPlanes(tiles, a);
    const int64_t filled = Order(a.window, a.x.channels).filled;
    const Int8Out out{a.y, a.y_f32, a.ld_y};
    const int64_t weights =
        (a.panel_end - a.panel_begin) * Panels::kPanel * filled;
    const int64_t most = MostRows(filled, weights);
    if (a.pixel_end - a.pixel_begin < kFewestRows) {
      const typename Int8Gemm<S>::Job job{
          {a.w}, a.n, filled, a.panel_begin, a.panel_end, out, &a.epilogue};
      ForRows(a, filled, most, [&](const Rows& now, const Rows&) {
        Int8Gemm<S>::Block(job, now.x, now.ld, now.first, now.count);
      });
      return;
    }
    Gemm gemm(tiles, {a.w, a.n, filled / Gemm::kStep, a.panel_begin,
                      a.panel_end, out, &a.epilogue, IsFar(a)});
    ForRows(a, filled, most, [&](const Rows& now, const Rows& next) {
      typename Gemm::Wanted wanted;
      if (next.x != nullptr) {
        wanted = {reinterpret_cast<const char*>(next.x), next.count, filled,
                  next.ld};
      }
      const typename Gemm::Run run{now.x, filled / Gemm::kStep};
      gemm.Multiply({.runs = &run,
                     .num_runs = 1,
                     .ld = now.ld,
                     .count = now.count,
                     .first = now.first},
                    wanted);
    });
    gemm.Finish();
  }

 private:
  static constexpr int64_t kFewestOutputs = 8;
  static constexpr int64_t kShortestK = 32;
  // Fewer than these are not worth a tile.
  static constexpr int64_t kFewestRows = 3;
  // Weights that come from L2 for each few rows; of more, each is used for as
  // many rows as stay there.
  static constexpr int64_t kWeightsInL2 = 768 << 10;
  static constexpr int64_t kRowsInL2 = 512 << 10;  // bytes
  static constexpr int64_t kRowsInL1 = 12 << 10;
  // Positions of planes that are multiplied by all panels before others are,
  // and the bytes of them that stay in L1.
  static constexpr int64_t kPositionsInL1 = 64;
  static constexpr int64_t kRowsOfL1 = 24 << 10;

  static int64_t K(const Window& w, int64_t channels) {
    return w.kernel_h * w.kernel_w * channels;
  }
  // Whether results are more than stay in L2, and come so fast that a call
  // waits for their lines.
  static bool IsFar(const Int8ConvArgs& a) {
    constexpr int64_t kResultsInL2 = 1 << 20;
    constexpr int64_t kMostK = 512;
    const int64_t each = a.y != nullptr ? 1 : 4;
    return K(a.window, a.x.channels) <= kMostK &&
           (a.pixel_end - a.pixel_begin) * a.ld_y * each > kResultsInL2;
  }
  static int64_t WholeSteps(int64_t k) {
    return (k + Gemm::kStep - 1) / Gemm::kStep * Gemm::kStep;
  }
  // Filled up to whole steps: each row of the kernel where planes are read,
  // else all of k.
  static Int8Order Order(const Window& w, int64_t channels) {
    if (ReadsPlanes(w, channels)) {
      const int64_t run = w.kernel_w * channels;
      return {.by_rows = true,
              .rows = w.kernel_h,
              .run = run,
              .filled = WholeSteps(run)};
    }
    const int64_t k = K(w, channels);
    return {.run = k, .filled = WholeSteps(k)};
  }

  // ---- planes ----
  struct PlaneValues {
    using E = uint8_t;
    static void Copy(const uint8_t* from, int64_t n, uint8_t* to) {
      CopyBytes<S>(from, n, to);
    }
  };
  using Planes = ImagePlanes<PlaneValues, uint8_t, Int8ConvArgs>;
  using Taps = ShortTaps<PlaneValues, uint8_t, Int8ConvArgs>;
  static constexpr int64_t kMostRuns = 16;  // rows of a kernel
  static constexpr int64_t kBandBytes = 256 << 10;

  // Where what fills the rows of a kernel costs a fourth at most.
  static bool ReadsPlanes(const Window& w, int64_t channels) {
    return w.kernel_h * w.kernel_w > 1 && w.kernel_h <= kMostRuns &&
           w.dilation_w == 1 && w.stride_w <= w.kernel_w &&
           4 * w.kernel_h * WholeSteps(w.kernel_w * channels) <=
               5 * WholeSteps(K(w, channels));
  }
  static Int8ConvArgs SizesOf(const Window& w, int64_t out_width,
                              int64_t channels) {
    Int8ConvArgs a;
    a.window = w;
    a.out_width = out_width;
    a.x.channels = channels;
    return a;
  }
  // Output rows whose planes stay in L2.
  static int64_t BandRows(const Int8ConvArgs& a) {
    const int64_t first = Planes::Values(a, 1);
    const int64_t further = Planes::Values(a, 2) - first;
    const int64_t rows =
        further > 0 && kBandBytes > first ? (kBandBytes - first) / further : 0;
    return rows + 1;
  }
  // A last block reads as if all its rows were there.
  static int64_t PlaneBytes(const Int8ConvArgs& a) {
    const int64_t slack =
        Gemm::kBlockRows * a.window.stride_w * a.x.channels + Gemm::kStep;
    return (Planes::Values(a, BandRows(a)) + slack + 63) / 64 * 64;
  }
  static int64_t ListBytes(const Int8ConvArgs& a) {
    return BandRows(a) * Planes::Positions(a) * 4;
  }

  static void RunPlanes(Tiles& tiles, const Int8ConvArgs& a) {
    const Window& w = a.window;
    const Int8Order order = Order(w, a.x.channels);
    const int64_t band = BandRows(a);
    const Planes planes(a, band);
    uint8_t* const values = a.scratch;
    auto* const row_of = reinterpret_cast<int32_t*>(a.scratch + PlaneBytes(a));
    const int64_t weights =
        (a.panel_end - a.panel_begin) * Panels::kPanel * order.k();
    const bool near = weights <= kWeightsInL2 &&
                      w.kernel_h * kPositionsInL1 * planes.ld() <= kRowsOfL1;
    Gemm gemm(tiles, {a.w,
                      a.n,
                      order.k() / Gemm::kStep,
                      a.panel_begin,
                      a.panel_end,
                      {a.y, a.y_f32, a.ld_y},
                      &a.epilogue,
                      IsFar(a)});
    for (int64_t pixel = a.pixel_begin; pixel < a.pixel_end;) {
      const int64_t row = pixel / a.out_width;
      const int64_t last = SmallerOf((row + band) * a.out_width, a.pixel_end);
      const int64_t row_end = (last - 1) / a.out_width + 1;
      gemm.Flush();  // by the list of the band before
      planes.Fill(a.x.data, row, row_end, values);
      // Positions of the pixels of this call.
      const int64_t p0 = pixel - row * a.out_width;
      const int64_t p1 = (row_end - 1 - row) * planes.positions() + last -
                         (row_end - 1) * a.out_width;
      int64_t column = p0;
      for (int64_t p = p0; p < p1; ++p) {
        row_of[p] = column < a.out_width ? static_cast<int32_t>(pixel++) : -1;
        if (++column == planes.positions()) column = 0;
      }
      const int64_t each = near ? kPositionsInL1 : p1 - p0;
      for (int64_t p = p0; p < p1; p += each) {
        typename Gemm::Run runs[kMostRuns];
        for (int64_t i = 0; i < w.kernel_h; ++i) {
          runs[i] = {values + planes.At(i, 0) + p * planes.ld(),
                     order.filled / Gemm::kStep};
        }
        gemm.Multiply({.runs = runs,
                       .num_runs = w.kernel_h,
                       .ld = planes.ld(),
                       .count = SmallerOf(each, p1 - p),
                       .row_of = row_of + p},
                      {});
      }
    }
    gemm.Finish();
  }

  static int64_t LdRow(int64_t filled) { return filled / 256 * 256 + 320; }
  // Rows that are multiplied by all panels before others are.
  static int64_t MostRows(int64_t filled, int64_t weights) {
    const bool few = weights <= kWeightsInL2;
    const int64_t fit = (few ? kRowsInL1 : kRowsInL2) / LdRow(filled) / 32 * 32;
    return fit < 32 ? 32 : SmallerOf(fit, few ? 64 : 256);
  }
  // How many of the rows that are left come next: about even parts.
  static int64_t NextRows(int64_t left, int64_t most) {
    if (left <= most) return left;
    const int64_t parts = (left + most - 1) / most;
    return ((left + parts - 1) / parts + 31) / 32 * 32;
  }

  // Pixels whose rows can be read to their last step in the image.
  static int64_t ReadablePixels(const ByteImage& x, int64_t filled) {
    const int64_t pixels = x.height * x.width;
    const int64_t bytes = (pixels - 1) * x.ld_pixel + x.channels;
    if (bytes < filled) return 0;
    return SmallerOf(pixels, (bytes - filled) / x.ld_pixel + 1);
  }

  // Some pixels as rows of a product. Of those that are not gathered yet, x is
  // null.
  struct Rows {
    const uint8_t* x = nullptr;
    int64_t ld = 0;
    int64_t first = 0;
    int64_t count = 0;
  };

  // body(now, next) for all pixels, some at a time; what is now can be read for
  // whole tiles.
  template <class Body>
  static void ForRows(const Int8ConvArgs& a, int64_t filled, int64_t most,
                      const Body& body) {
    const bool as_is = Int8Gather<S>::PixelsAreRows(a);
    const int64_t readable =
        as_is ? SmallerOf(a.pixel_end, ReadablePixels(a.x, filled)) : 0;
    const auto from = [&](int64_t p) {
      // Whole tiles as they lie first.
      if (readable - p >= Gemm::kTileRows) {
        const int64_t rows = NextRows(readable - p, most);
        return Rows{a.x.data + p * a.x.ld_pixel, a.x.ld_pixel, p,
                    readable < a.pixel_end ? rows / 16 * 16 : rows};
      }
      return Rows{nullptr, 0, p, NextRows(a.pixel_end - p, most)};
    };
    const int64_t ld = LdRow(filled);
    const auto row = [&](int64_t i) { return a.scratch + i * ld; };
    const bool is_short =
        !as_is && Taps::Takes(a.window, a.x.channels) && Taps::IsDense(a);
    Taps taps(a, a.x.data, row(most), filled);
    for (Rows now = from(a.pixel_begin); now.first < a.pixel_end;) {
      const Rows next = from(now.first + now.count);
      if (now.x == nullptr) {
        now.x = a.scratch;
        now.ld = ld;
        for (int64_t i = 0; as_is && i < now.count; ++i) {
          CopyBytes<S>(a.x.data + (now.first + i) * a.x.ld_pixel, a.x.channels,
                       row(i));
        }
        if (is_short) {
          taps.Gather(now.first, now.count, a.scratch, ld);
        } else if (!as_is) {
          Int8Gather<S>::Gather(a, now.first, now.count, row);
        }
      }
      body(now, next);
      now = next;
    }
  }
};

}  // namespace
}  // namespace millrace::models
