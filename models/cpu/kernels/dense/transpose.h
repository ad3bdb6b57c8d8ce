// Rows become columns. Squares of eight by eight, two side by side so that
// lines of 64 bytes are read whole; a few rows or columns (the channels of a
// picture) are woven one value at a time.
//
// Square gives Run(x, ld_x, y, ld_y), which moves eight rows of eight values.
// Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

template <class Square>
class Transposes {
 public:
  static void Run(const float* x, int64_t rows, int64_t columns, int64_t ld_x,
                  float* y, int64_t ld_y) {
    if (rows <= 4) return Rows(x, rows, columns, ld_x, y, ld_y);
    for (int64_t c = 0; c < columns; c += kWide) {
      const int64_t wide = columns - c < kWide ? columns - c : kWide;
      int64_t r = 0;
      for (; r + kSide <= rows; r += kSide) {
        const float* from = x + r * ld_x + c;
        float* to = y + c * ld_y + r;
        int64_t done = 0;
        for (; done + kSide <= wide; done += kSide) {
          Square::Run(from + done, ld_x, to + done * ld_y, ld_y);
        }
        Plain(from + done, kSide, wide - done, ld_x, to + done * ld_y, ld_y);
      }
      Plain(x + r * ld_x + c, rows - r, wide, ld_x, y + c * ld_y + r, ld_y);
    }
  }

 private:
  static constexpr int64_t kSide = 8;
  static constexpr int64_t kWide = 16;

  static void Plain(const float* x, int64_t rows, int64_t columns, int64_t ld_x,
                    float* y, int64_t ld_y) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) y[c * ld_y + r] = x[r * ld_x + c];
    }
  }

  static void Rows(const float* x, int64_t rows, int64_t columns, int64_t ld_x,
                   float* y, int64_t ld_y) {
    if (rows == 4) return Weave<4>(x, columns, ld_x, y, ld_y);
    if (rows == 3) return Weave<3>(x, columns, ld_x, y, ld_y);
    if (rows == 2) return Weave<2>(x, columns, ld_x, y, ld_y);
    Weave<1>(x, columns, ld_x, y, ld_y);
  }

  template <int kRows>
  static void Weave(const float* x, int64_t columns, int64_t ld_x, float* y,
                    int64_t ld_y) {
    for (int64_t c = 0; c < columns; ++c, y += ld_y) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) y[r] = x[r * ld_x + c];
    }
  }
};

}  // namespace
}  // namespace millrace::models
