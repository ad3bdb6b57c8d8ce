// Depthwise convolution of bytes. What a row of the result sees is copied into
// rows that hold their padding; columns that a stride skips stand apart:
//
//   stride 2     x0 x1 x2 x3 x4 …   ->   x0 x2 x4 …  |  x1 x3 …
//
// Then neighbours in the result see neighbours in such a row, whatever pixel or
// channel they are of, and a row is one run of pieces of kPiece values. A piece
// takes kTapRows rows of the kernel at once: their bytes are interleaved, so
// that a lane holds the taps of one value.
//
// Weights are repeated until a whole number of channels fills a whole number of
// pieces, since pieces do not care where a pixel ends. Where that takes too
// many, a pixel is a run of its own.
//
//   weights      [piece][kernel_w][kernel_h / kTapRows][vector][lane] of 4
//   bytes
//
// Lanes are in the order that interleaving leaves: value 16 i + 4 v + t of a
// piece is lane 4 i + t of vector v. S is what kernels/dense_int8/gemm.h says.
// Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/conv.h"

namespace millrace::models {
namespace {

template <class S>
class Int8Depthwise {
 public:
  using V = typename S::V;
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPiece = 4 * kLanes;

  // ---- sizes ----
  static int64_t Items(int64_t channels) {
    return Pieces(channels).different * kPiece;
  }
  static int64_t PackedBytes(const Window& w, int64_t channels) {
    return Items(channels) * Groups(w) * w.kernel_w * 4;
  }
  static int64_t PiecesOfRow(int64_t out_width, int64_t channels) {
    const Pieces p(channels);
    return p.joined ? CeilOf(out_width * channels, kPiece)
                    : out_width * p.different;
  }
  static int64_t ScratchBytes(const Window& w, int64_t out_width,
                              int64_t channels) {
    const RowCopy copy(w, out_width, channels);
    return Line(8 * (w.kernel_w + Groups(w) * S::kTapRows + Span(w))) +
           (Span(w) + 1) * copy.bytes;
  }

  // ---- once ----
  // w is [channels][kernel_h][kernel_w].
  static void Pack(const int8_t* w, const Window& window, int64_t channels,
                   int8_t* packed) {
    const Pieces pieces(channels);
    const int64_t taps = window.kernel_h * window.kernel_w;
    for (int64_t piece = 0; piece < pieces.different; ++piece) {
      for (int64_t j = 0; j < window.kernel_w; ++j) {
        for (int64_t i = 0; i < window.kernel_h; i += S::kTapRows) {
          for (int64_t item = 0; item < kPiece; ++item, packed += 4) {
            const int64_t c = pieces.ChannelOf(piece, item);
            int8_t of[S::kTapRows] = {};
            for (int64_t t = 0; t < S::kTapRows; ++t) {
              if (c < 0 || i + t >= window.kernel_h) continue;
              of[t] = w[c * taps + (i + t) * window.kernel_w + j];
            }
            S::PutTaps(of, packed);
          }
        }
      }
    }
  }

  // A value of 32 bits of each channel, in the order of the lanes.
  static void Order(const void* of_channels, int64_t channels, void* ordered) {
    const Pieces pieces(channels);
    const auto* from = static_cast<const uint32_t*>(of_channels);
    auto* to = static_cast<uint32_t*>(ordered);
    for (int64_t piece = 0; piece < pieces.different; ++piece) {
      for (int64_t item = 0; item < kPiece; ++item) {
        const int64_t c = pieces.ChannelOf(piece, item);
        *to++ = c < 0 ? 0 : from[c];
      }
    }
  }

  // ---- every time ----
  static void Run(const Int8DepthwiseArgs& a) {
    const Int8Epilogue& e = a.epilogue;
    if (a.y != nullptr && ByteLimits(e).cover_f && e.middle_scale == 0 &&
        e.residual == nullptr && e.residual_f32 == nullptr) {
      Choose<true>(a);
    } else {
      Choose<false>(a);
    }
  }

 private:
  // Values of a quarter of a lane's neighbours that stay together.
  static constexpr int kRun = kLanes < 4 ? kLanes : 4;

  static int64_t CeilOf(int64_t n, int64_t d) { return (n + d - 1) / d; }
  static int64_t Line(int64_t bytes) { return CeilOf(bytes, 64) * 64; }
  static int64_t Groups(const Window& w) {
    return CeilOf(w.kernel_h, S::kTapRows);
  }
  // Rows from the first that a window sees to the last.
  static int64_t Span(const Window& w) {
    return (w.kernel_h - 1) * w.dilation_h + 1;
  }

  // How values of a row, or of a pixel, make pieces.
  struct Pieces {
    explicit Pieces(int64_t of) : channels(of) {
      int64_t a = kPiece;
      int64_t b = channels;
      while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
      }
      const int64_t apart = CeilOf(channels, kPiece);
      const int64_t repeated = channels / a;
      // A fifth of the lanes may be idle rather than weights repeated.
      joined = repeated == apart ||
               (repeated <= 32 && channels * 5 < apart * kPiece * 4);
      different = joined ? repeated : apart;
    }
    // Of a place among the lanes; -1 where there is none.
    int64_t ChannelOf(int64_t piece, int64_t item) const {
      const int64_t v = item / kLanes;
      const int64_t lane = item % kLanes;
      const int64_t value =
          piece * kPiece + lane / kRun * kRun * 4 + v * kRun + lane % kRun;
      if (joined) return value % channels;
      return value < channels ? value : -1;
    }

    int64_t channels;
    bool joined;        // pieces run over pixels
    int64_t different;  // pieces that differ in their channels
  };

  // A row of the image with its padding, one plane for each column that a
  // stride skips to.
  struct RowCopy {
    RowCopy(const Window& w, int64_t out_width, int64_t c)
        : stride(w.stride_w),
          columns((out_width - 1) * w.stride_w +
                  (w.kernel_w - 1) * w.dilation_w + 1),
          channels(c),
          plane(CeilOf(columns, stride) * c),
          bytes(Line(stride * plane + kPiece)) {}
    // Where a column stands.
    int64_t At(int64_t column) const {
      return column % stride * plane + column / stride * channels;
    }

    int64_t stride;
    int64_t columns;
    int64_t channels;
    int64_t plane;
    int64_t bytes;
  };

  struct Scratch {
    int64_t* tap_at;       // of each column of the kernel
    const uint8_t** rows;  // of each row of the kernel
    int64_t* held;         // which row of the image a place holds
    uint8_t* copies;       // the places, then a row of zero points
  };

  static void Copy(const Int8DepthwiseArgs& a, const RowCopy& copy, int64_t row,
                   uint8_t* to) {
    const ByteImage& x = a.x;
    const uint8_t* from = x.data + row * x.ld_row;
    const int64_t left = SmallerOf(a.window.pad_left, copy.columns);
    const int64_t end = SmallerOf(left + x.width, copy.columns);
    if (copy.stride == 1 && x.ld_pixel == x.channels) {
      Fill(x.zero, left * x.channels, to);
      CopyBytes<S>(from, (end - left) * x.channels, to + left * x.channels);
      Fill(x.zero, (copy.columns - end) * x.channels, to + end * x.channels);
      return;
    }
    for (int64_t column = 0; column < copy.columns; ++column) {
      uint8_t* pixel = to + copy.At(column);
      if (column < left || column >= end) {
        Fill(x.zero, x.channels, pixel);
      } else {
        CopyBytes<S>(from + (column - left) * x.ld_pixel, x.channels, pixel);
      }
    }
  }
  static void Fill(uint8_t byte, int64_t n, uint8_t* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = byte;
  }

  static Scratch Prepare(const Int8DepthwiseArgs& a, const RowCopy& copy) {
    const Window& w = a.window;
    Scratch s;
    s.tap_at = reinterpret_cast<int64_t*>(a.scratch);
    s.rows = reinterpret_cast<const uint8_t**>(s.tap_at + w.kernel_w);
    s.held = reinterpret_cast<int64_t*>(s.rows + Groups(w) * S::kTapRows);
    s.copies = a.scratch +
               Line(reinterpret_cast<uint8_t*>(s.held + Span(w)) - a.scratch);
    for (int64_t j = 0; j < w.kernel_w; ++j) {
      s.tap_at[j] = copy.At(j * w.dilation_w);
    }
    for (int64_t i = 0; i < Span(w); ++i) s.held[i] = -1;
    Fill(a.x.zero, copy.bytes, s.copies + Span(w) * copy.bytes);
    return s;
  }

  // Points at the rows that a row of the result sees, copied where they are
  // not yet.
  static void See(const Int8DepthwiseArgs& a, const RowCopy& copy, int64_t row,
                  const Scratch& s) {
    const Window& w = a.window;
    const int64_t span = Span(w);
    for (int64_t i = 0; i < Groups(w) * S::kTapRows; ++i) {
      const int64_t from = row * w.stride_h - w.pad_top + i * w.dilation_h;
      if (i >= w.kernel_h || from < 0 || from >= a.x.height) {
        s.rows[i] = s.copies + span * copy.bytes;
        continue;
      }
      uint8_t* place = s.copies + from % span * copy.bytes;
      if (s.held[from % span] != from) {
        Copy(a, copy, from, place);
        s.held[from % span] = from;
      }
      s.rows[i] = place;
    }
  }

  // kRows, kColumns: of the kernel; 0: any.
  template <bool kQuick>
  static void Choose(const Int8DepthwiseArgs& a) {
    const Window& w = a.window;
    if (w.kernel_h == 3 && w.kernel_w == 3) return Rows<kQuick, 3, 3>(a);
    if (w.kernel_h == 5 && w.kernel_w == 5) return Rows<kQuick, 5, 5>(a);
    Rows<kQuick, 0, 0>(a);
  }

  template <bool kQuick, int kRows, int kColumns>
  static void Rows(const Int8DepthwiseArgs& a) {
    const int64_t channels = a.x.channels;
    const Pieces pieces(channels);
    const RowCopy copy(a.window, a.out_width, channels);
    const Scratch s = Prepare(a, copy);
    const int64_t of_row = PiecesOfRow(a.out_width, channels);
    const int64_t piece_bytes =
        kPiece * 4 * Groups(a.window) * a.window.kernel_w;
    const Quick quick(a);
    for (int64_t at = a.begin; at < a.end;) {
      const int64_t row = at / of_row;
      const int64_t last = SmallerOf(a.end - row * of_row, of_row);
      See(a, copy, row, s);
      const int64_t value_of_row = row * a.out_width * channels;
      const int64_t row_end = a.out_width * channels;
      int64_t p = at - row * of_row;
      at = row * of_row + last;
      int64_t piece = p % pieces.different;
      int64_t pixel = pieces.joined ? 0 : p / pieces.different;
      for (; p < last; ++p) {
        int64_t value = p * kPiece;  // of the row
        int64_t n = SmallerOf(row_end - value, kPiece);
        if (!pieces.joined) {
          value = pixel * channels + piece * kPiece;
          n = SmallerOf(channels - piece * kPiece, kPiece);
        }
        I acc[4];
        if constexpr (kQuick) {
          quick.Start(piece * kPiece, acc);
        } else {
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) acc[v] = V::SetBits(0);
        }
        Sum<kRows, kColumns>(a.window, s, a.w + piece * piece_bytes, value,
                             acc);
        if constexpr (kQuick) {
          quick.Finish(piece * kPiece, acc, n, a.y + value_of_row + value);
        } else {
          FinishSlowly(a, value_of_row + value, acc, n);
        }
        if (++piece == pieces.different) {
          piece = 0;
          ++pixel;
        }
      }
    }
  }

  template <int kRows, int kColumns>
  static void Sum(const Window& window, const Scratch& s, const int8_t* w,
                  int64_t value, I (&acc)[4]) {
    const int64_t columns = kColumns > 0 ? kColumns : window.kernel_w;
    const int64_t groups =
        kRows > 0 ? (kRows + S::kTapRows - 1) / S::kTapRows : Groups(window);
#pragma GCC unroll 5
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = s.tap_at[j] + value;
#pragma GCC unroll 3
      for (int64_t g = 0; g < groups; ++g) {
        typename S::Taps taps[S::kTapRows];
#pragma GCC unroll 4
        for (int t = 0; t < S::kTapRows; ++t) {
          const int64_t i = g * S::kTapRows + t;
          taps[t] = kRows > 0 && i >= kRows ? S::NoTaps()
                                            : S::LoadTaps(s.rows[i] + at);
        }
        I x[4];
        S::Interleave(taps, x);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          acc[v] = S::DotTaps(acc[v], x[v], S::Weights(w + v * 4 * kLanes));
        }
        w += 4 * kPiece;
      }
    }
  }

  // The commonest epilogues without leaving the registers.
  struct Quick {
    explicit Quick(const Int8DepthwiseArgs& a)
        : offset(a.offset),
          scale(a.scale),
          bias(a.bias),
          lookup(a.epilogue.lookup),
          y_zero(a.epilogue.y_zero),
          scales(a.epilogue.y_scale != 1),
          y_scale(V::Set(a.epilogue.y_scale)) {
      const ByteLimits limits(a.epilogue);
      low = V::Set(limits.low);
      high = V::Set(limits.high);
    }

    void Start(int64_t item, I (&acc)[4]) const {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        acc[v] = S::LoadInts(offset + item + v * kLanes, kLanes);
      }
    }
    void Finish(int64_t item, const I (&acc)[4], int64_t n, uint8_t* y) const {
      I q[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const int64_t at = item + v * kLanes;
        F value =
            V::Fma(V::ToFloat(acc[v]), V::Load(scale + at), V::Load(bias + at));
        if (scales) value = V::Mul(value, y_scale);
        q[v] = S::ToInts(V::Min(V::Max(value, low), high));
      }
      auto bytes = S::PackBytes(q, y_zero);
      if (lookup != nullptr) bytes = S::LookupTaps(lookup, bytes);
      S::StoreTaps(y, n, bytes);
    }

    const int32_t* const offset;
    const float* const scale;
    const float* const bias;
    const uint8_t* const lookup;
    const int32_t y_zero;
    const bool scales;
    const F y_scale;
    F low;
    F high;
  };

  // n values in turn from `value` on, which is counted from the image's first.
  static void FinishSlowly(const Int8DepthwiseArgs& a, int64_t value,
                           const I (&acc)[4], int64_t n) {
    alignas(64) int32_t lanes[kPiece];
    alignas(64) int32_t sums[kPiece];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) S::StoreInts(lanes + v * kLanes, acc[v]);
    for (int i = 0; i < kPiece; ++i) {
      const int v = i / kRun % 4;
      sums[i] = lanes[v * kLanes + i / (4 * kRun) * kRun + i % kRun];
    }
    const int64_t channels = a.x.channels;
    for (int64_t i = 0; i < n;) {
      const int64_t pixel = (value + i) / channels;
      const int64_t c = (value + i) % channels;
      const int64_t count = SmallerOf(n - i, channels - c);
      const Int8Out out{a.y, a.y_f32, channels};
      Int8Finish<S>::Run(sums + i, kPiece, 1, count, From(a.epilogue, pixel, c),
                         out.At(pixel, c));
      i += count;
    }
  }
};

}  // namespace
}  // namespace millrace::models
