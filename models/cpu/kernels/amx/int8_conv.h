// Convolutions and linear layers of bytes in tiles: rows are pixels where they
// lie, or what pixels see, gathered. See int8_gemm.h.
//
// S is what kernels/dense_int8/gemm.h says, of 16 lanes. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/int8_gemm.h"
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

  static int64_t ScratchBytes(const Window& w, int64_t channels) {
    const int64_t filled = Order(w, channels).filled;
    const int64_t few = MostRows(filled, 0);
    const int64_t many = MostRows(filled, INT64_MAX);
    return (few > many ? few : many) * LdRow(filled);
  }

  static void Run(Tiles& tiles, const Int8ConvArgs& a) {
    if (a.pixel_begin >= a.pixel_end) return;
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
                      a.panel_end, out, &a.epilogue});
    ForRows(a, filled, most, [&](const Rows& now, const Rows& next) {
      typename Gemm::Wanted wanted;
      if (next.x != nullptr) {
        wanted = {reinterpret_cast<const char*>(next.x), next.count, filled,
                  next.ld};
      }
      gemm.Multiply(now.x, now.ld, now.first, now.count, wanted);
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

  static int64_t K(const Window& w, int64_t channels) {
    return w.kernel_h * w.kernel_w * channels;
  }
  // One run, filled up to whole steps.
  static Int8Order Order(const Window& w, int64_t channels) {
    const int64_t k = K(w, channels);
    const int64_t steps = (k + Gemm::kStep - 1) / Gemm::kStep;
    return {.run = k, .filled = steps * Gemm::kStep};
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
    for (Rows now = from(a.pixel_begin); now.first < a.pixel_end;) {
      const Rows next = from(now.first + now.count);
      if (now.x == nullptr) {
        now.x = a.scratch;
        now.ld = ld;
        for (int64_t i = 0; as_is && i < now.count; ++i) {
          CopyBytes<S>(a.x.data + (now.first + i) * a.x.ld_pixel, a.x.channels,
                       row(i));
        }
        if (!as_is) Int8Gather<S>::Gather(a, now.first, now.count, row);
      }
      body(now, next);
      now = next;
    }
  }
};

}  // namespace
}  // namespace millrace::models
