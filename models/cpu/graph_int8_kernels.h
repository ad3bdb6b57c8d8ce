// Int8Table: kernels of graphs on quantised images and matrices, one table for
// each of scalar, AVX2, AVX-VNNI, AVX-512 VNNI, that with VBMI, and AMX, and
// three of NEON (arm_kernels.h). The sibling of graph_kernels.h: what that says
// of calls, ranges and images holds here, too.
//
//   const Int8Table& int8 = …;  // ChooseInt8 of isa.h
//   int8.pack(w, n, window, channels, packed);               // once
//   int8.conv({.x = image, .w = packed, .n = n, .panel_end = panels, .y = y,
//              .ld_y = n, .epilogue = {.offset = …, .scale = …}, …});
//
// Activations are bytes without sign, weights bytes with one. A value q stands
// for (q - zero) * scale; what has signed bytes is moved by 128 before.
//
// ---- Chains -------------------------------------------------------------
// All tables give the same bits. Sums of products are exact integers (of 32
// bits: callers prove that k * 255 * 128 fits), so their order is free; no
// table saturates on the way. Behind a sum:
//   v = fma(float(sum + offset), scale, bias)
//   v = fma(min(high, max(low, round(v))), middle.scale, middle.bias)
//                                                      (if the scale is not 0)
//   v = fma(r - zero, r_scale, v)                      (residual, if first)
//   v = f(v)
//   v = fma(r - zero, r_scale, v)                      (residual otherwise)
//   y = v, or byte(round(min(255 - y_zero, max(-y_zero, v * y_scale))) +
//   y_zero)
//   y = lookup[y]                                      (bytes, if any)
// round is to nearest even. Scales and biases are finite; `quantise` makes the
// byte 0 of a NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"

namespace millrace::models {

// What happens to a finished sum. Pointers may be null but for offset and
// scale. Rows are those of y, columns the outputs.
struct Int8Epilogue {
  const int32_t* offset = nullptr;  // [n]: -x_zero * sum of w, and more
  const float* scale = nullptr;     // [n]
  const float* bias = nullptr;      // [n]
  // A value between that is quantised on its own: limits before its zero point
  // is added, and what a step of it is worth behind.
  float middle_scale = 0;
  float middle_low = 0;
  float middle_high = 0;
  const float* middle_bias = nullptr;  // [n], added behind
  Unary f = Unary::kNone;
  float a = 0;
  float b = 0;
  // One of the two at most.
  const uint8_t* residual = nullptr;  // [m][ld_residual]
  const float* residual_f32 = nullptr;
  int64_t ld_residual = 0;
  float residual_scale = 0;     // of either
  float residual_zero = 0;      // of bytes
  bool residual_first = false;  // before f
  // Of results in bytes; y_scale multiplies.
  float y_scale = 1;
  int32_t y_zero = 0;
  // What becomes of each byte at last: a function behind a result that is
  // quantised before it.
  const uint8_t* lookup = nullptr;  // [256]
};

// One image of bytes; see Image of graph_kernels.h. What lies in the padding is
// `zero`.
struct ByteImage {
  const uint8_t* data = nullptr;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t ld_row = 0;
  int64_t ld_pixel = 0;
  uint8_t zero = 0;
};

// As ConvArgs of graph_kernels.h. A matrix is an image of height 1. One of y
// and y_f32 is given.
struct Int8ConvArgs {
  ByteImage x;
  Window window;
  int64_t out_width = 0;
  int64_t pixel_begin = 0;
  int64_t pixel_end = 0;
  const int8_t* w = nullptr;  // packed
  int64_t n = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  uint8_t* y = nullptr;  // pixel 0, output 0
  float* y_f32 = nullptr;
  int64_t ld_y = 0;
  Int8Epilogue epilogue = {};
  uint8_t* scratch = nullptr;  // conv_scratch_bytes, aligned to 64 bytes
};

// Every channel by its own taps. Work is counted in pieces, so many to a row of
// the result: [begin, end) are those of one image. Results are dense. What the
// epilogue says of channels is here once more in the order that the kernel
// wants; a bias is given.
struct Int8DepthwiseArgs {
  ByteImage x;
  Window window;
  int64_t out_width = 0;
  int64_t begin = 0;
  int64_t end = 0;
  const int8_t* w = nullptr;  // packed
  const int32_t* offset = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  uint8_t* y = nullptr;  // pixel 0
  float* y_f32 = nullptr;
  Int8Epilogue epilogue = {};
  uint8_t* scratch = nullptr;  // aligned to 64 bytes
};

struct Int8DepthwiseTable {
  // Pieces of a row of the result.
  int64_t (*pieces)(int64_t out_width, int64_t channels);
  // w is [channels][kernel_h][kernel_w].
  int64_t (*packed_bytes)(const Window& window, int64_t channels);
  void (*pack)(const int8_t* w, const Window& window, int64_t channels,
               int8_t* packed);
  // A value of 32 bits of each channel in the kernel's order, which has
  // `ordered` of them.
  int64_t (*ordered)(int64_t channels);
  void (*order)(const void* of_channels, int64_t channels, void* ordered);
  int64_t (*scratch_bytes)(const Window& window, int64_t out_width,
                           int64_t channels);
  void (*run)(const Int8DepthwiseArgs& args);
};

// The largest byte of each window: for output rows [row_begin, row_end); the
// taps in the image; of none, 0.
struct Int8PoolArgs {
  ByteImage x;
  Window window;
  int64_t out_width = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  uint8_t* y = nullptr;  // pixel 0
  int64_t ld_y = 0;      // bytes between pixels
};

// y[r][c] = byte(round(min(255 - zero, max(-zero, min(high, max(low,
//                fma(x[r][c], scale[c], bias[c])))))) + zero), dense rows.
struct Int8AffineArgs {
  const uint8_t* x = nullptr;
  int64_t rows = 0;
  int64_t n = 0;
  const float* scale = nullptr;  // [n]
  const float* bias = nullptr;   // [n]
  float low = 0;
  float high = 0;
  int32_t zero = 0;
  uint8_t* y = nullptr;
};

// A weighted sum of `count` runs of n bytes:
//   v = Σ fma(from[j][i] - x_zero, weight[j], v), in order, beginning with 0
//   y[i] = byte(round(min(255 - y_zero, max(-y_zero, v * scale))) + y_zero)
struct Int8MixArgs {
  const uint8_t* const* from = nullptr;  // [count]
  const float* weight = nullptr;         // [count]
  int64_t count = 0;
  int64_t n = 0;
  int32_t x_zero = 0;
  float scale = 1;
  int32_t y_zero = 0;
  uint8_t* y = nullptr;
};

struct Int8Table {
  const char* name;  // "scalar", "avx2", "avxvnni", "avx512vnni", "avx512vbmi",
                     // "amx", "neon", "neondot", "neoni8mm"

  // Outputs of one panel; a matrix has ceil(n / panel) of them.
  int32_t panel;
  // Bytes of a packed w[n][kernel_h][kernel_w][channels], which depend on what
  // it holds where a product of four bytes is missing; its memory is aligned to
  // 64 bytes.
  int64_t (*packed_bytes)(const int8_t* w, int64_t n, const Window& window,
                          int64_t channels);
  void (*pack)(const int8_t* w, int64_t n, const Window& window,
               int64_t channels, int8_t* packed);
  int64_t (*conv_scratch_bytes)(const Window& window, int64_t out_width,
                                int64_t channels);
  void (*conv)(const Int8ConvArgs& args);
  Int8DepthwiseTable depthwise;
  void (*max_pool)(const Int8PoolArgs& args);

  void (*affine)(const Int8AffineArgs& args);
  void (*mix)(const Int8MixArgs& args);
  // y[i] = byte(round(min(255 - zero, max(-zero, x[i] * scale))) + zero)
  void (*quantise)(const float* x, int64_t n, float scale, int32_t zero,
                   uint8_t* y);
  // y[i] = (x[i] - zero) * scale
  void (*dequantise)(const uint8_t* x, int64_t n, float scale, int32_t zero,
                     float* y);
  // y[i] = table[x[i]]; may be done in place.
  void (*lookup)(const uint8_t* table, const uint8_t* x, int64_t n, uint8_t* y);
  // sums[c] = Σ of x[rows][ld_x] over rows, for n columns; rows below 2^24.
  void (*column_sums)(const uint8_t* x, int64_t rows, int64_t n, int64_t ld_x,
                      int32_t* sums);
};

// The tables compiled in; null where the compiler has no such target. Whether
// this machine may run one is isa.h's business.
const Int8Table* ScalarInt8();
const Int8Table* Avx2Int8();
const Int8Table* AvxVnniInt8();
const Int8Table* Avx512VnniInt8();
const Int8Table* Avx512VbmiInt8();
const Int8Table* AmxInt8();

}  // namespace millrace::models
