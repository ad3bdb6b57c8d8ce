// What the kernels of quantised graphs take. An activation is a byte q without
// sign that stands for (q - zero) * scale; weights are bytes with one. What
// graph_kernels.h says of layouts, pointers, strides and streams holds here.
//
// Sums of products are exact integers of 32 bits. What follows them is the
// chain of the engine on cores (models/cpu/graph_int8_kernels.h) with its
// roundings, so results are the same bytes but for functions that are not exact
// (exp and what is made of it), which may round to the other side of a tie.
#pragma once

#include <cstdint>

#include "models/cuda/graph_kernels.h"

namespace millrace::cuda {

// What becomes of the sum of each output; of an int64 place `at` in the result:
//   v = fma(sum + offset, scale, bias)
//   v = fma(min(high, max(low, round(v))), middle_scale, middle_bias)
//                                         (where middle_scale is not 0)
//   residual if it is first, the function, residual if it is not
//   y = v, or round(min(255 - y_zero, max(-y_zero, v * y_scale))) + y_zero
//   y = lookup[y]                         (bytes, where there is one)
struct GraphByteEpilogue {
  const int32_t* offset;  // of each output: -zero of x times the weights' sum
  const float* scale;     // likewise
  const float* bias;      // likewise; null: none
  const float* middle_bias;  // likewise
  const uint8_t* lookup;     // [256]; null: none
  // Of an x that is measured in the same run: one value each, which multiply
  // scale and offset. Null: x is known.
  const float* x_scale;
  const uint8_t* x_zero;
  float middle_scale;
  float middle_low;
  float middle_high;
  Function f;
  float a;
  float b;
  const uint8_t* residual;  // one of the two at most; they lie as the result
  const float* residual_f32;
  float residual_scale;  // of either
  float residual_zero;   // of bytes
  bool residual_first;
  float y_scale;  // multiplies
  int32_t y_zero;
};

// A convolution, or a linear layer: that is one of 1 x 1 x 1, a row a batch.
// x [batch][in…][channels]; w [outputs][kernel…][channels / groups], each
// output filled with zeros to `row_bytes`, a multiple of kPackedUnit;
// y [batch][out…][outputs], bytes or floats. A transposed one spreads, as
// GraphConvArgs. Weights of depthwise layers lie otherwise: see GraphDepthwise.
struct GraphByteLayerArgs {
  GraphWindow window;
  int64_t batch;
  int32_t channels;
  int32_t outputs;
  int32_t groups;
  bool transposed;
  const uint8_t* x;
  // What lies in the padding: the zero point of x, and 16 bytes of it. Where x
  // is measured, its zero point instead.
  uint8_t zero;
  const uint8_t* padding;
  const int8_t* w;
  int64_t row_bytes;
  uint8_t* y;  // one of the two
  float* y_f32;
  GraphByteEpilogue epilogue;
  GraphTile tile;  // kChosen, but for tests
  bool wide;  // set by the launch: four outputs are read and written at once
};

// [images][pixels][channels] where a mean is of all pixels.
struct GraphBytePoolArgs {
  GraphWindow window;
  int64_t batch;
  int32_t channels;
  const uint8_t* x;
  uint8_t* y;
};
// y = float((sum - pixels * zero) * (scale / pixels)), in double precision, or
// that in bytes: y_scale multiplies.
struct GraphByteMeanArgs {
  int64_t batch, pixels, channels;
  float x_scale;
  int32_t x_zero;
  float y_scale;
  int32_t y_zero;
  const uint8_t* x;
  uint8_t* y;  // one of the two
  float* y_f32;
};

// y = round(min(255 - zero, max(-zero, x * scale))) + zero; a NaN becomes 0.
struct GraphQuantizeArgs {
  int64_t count;
  float scale;
  int32_t zero;
  const float* x;
  uint8_t* y;
};
// The same by the range of x and 0, which is found first: the scale is (high -
// low) / 255. `y` has room for what blocks find until it is written.
struct GraphMeasureArgs {
  int64_t count;
  const float* x;
  uint8_t* y;
  float* scale;   // [1]
  uint8_t* zero;  // [1]
};
// y = (x - zero) * scale
struct GraphDequantizeArgs {
  int64_t count;
  float scale;
  int32_t zero;
  // Of an x that is measured: these instead. Null: x is known.
  const float* x_scale;
  const uint8_t* x_zero;
  const uint8_t* x;
  float* y;
};
// y = table[x]
struct GraphLookupArgs {
  int64_t count;
  const uint8_t* table;  // [256]
  const uint8_t* x;
  uint8_t* y;
};

// Each returns 0, or the number of the device's error. Nothing to do: 0.
int GraphByteLayer(Stream stream, const GraphByteLayerArgs& args);
// Channels that are multiplied by taps of their own: outputs and groups are as
// many. w is [kernel taps / 4, rounded up][channels][4 taps], zeros behind the
// last tap.
int GraphByteDepthwise(Stream stream, const GraphByteLayerArgs& args);
// The greatest byte of each window; of none, 0.
int GraphByteMaxPool(Stream stream, const GraphBytePoolArgs& args);
int GraphByteMean(Stream stream, const GraphByteMeanArgs& args);
int GraphQuantize(Stream stream, const GraphQuantizeArgs& args);
int GraphMeasure(Stream stream, const GraphMeasureArgs& args);
int GraphDequantize(Stream stream, const GraphDequantizeArgs& args);
int GraphLookup(Stream stream, const GraphLookupArgs& args);

}  // namespace millrace::cuda
