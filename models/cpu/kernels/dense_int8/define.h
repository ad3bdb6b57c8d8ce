// The functions of one int8 table by its vectors: for the one file that an
// instruction set compiles. Isa is a name of parts.h, S what gemm.h says.
#pragma once

#include "models/cpu/kernels/dense_int8/conv.h"
#include "models/cpu/kernels/dense_int8/depthwise.h"
#include "models/cpu/kernels/dense_int8/parts.h"
#include "models/cpu/kernels/dense_int8/windows.h"

#define MILLRACE_DEFINE_INT8(Isa, S)                                          \
  template <>                                                                 \
  int64_t Int8Parts<Isa>::PackedBytes(                                        \
      const int8_t* w, int64_t n, const Window& window, int64_t channels) {   \
    return Int8Panels<S>::PackedBytes(w, n, OrderOf<S>(n, window, channels)); \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::Pack(const int8_t* w, int64_t n, const Window& window, \
                            int64_t channels, int8_t* packed) {               \
    Int8Panels<S>::Pack(w, n, OrderOf<S>(n, window, channels), packed);       \
  }                                                                           \
  template <>                                                                 \
  int64_t Int8Parts<Isa>::ConvScratchBytes(                                   \
      const Window& window, int64_t out_width, int64_t channels) {            \
    return Int8Conv<S>::ScratchBytes(window, out_width, channels);            \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::Conv(const Int8ConvArgs& args) {                       \
    Int8Conv<S>::Run(args);                                                   \
  }                                                                           \
  template <>                                                                 \
  int64_t Int8DepthwiseParts<Isa>::Pieces(int64_t width, int64_t channels) {  \
    return Int8Depthwise<S>::PiecesOfRow(width, channels);                    \
  }                                                                           \
  template <>                                                                 \
  int64_t Int8DepthwiseParts<Isa>::PackedBytes(const Window& window,          \
                                               int64_t channels) {            \
    return Int8Depthwise<S>::PackedBytes(window, channels);                   \
  }                                                                           \
  template <>                                                                 \
  void Int8DepthwiseParts<Isa>::Pack(const int8_t* w, const Window& window,   \
                                     int64_t channels, int8_t* packed) {      \
    Int8Depthwise<S>::Pack(w, window, channels, packed);                      \
  }                                                                           \
  template <>                                                                 \
  int64_t Int8DepthwiseParts<Isa>::Ordered(int64_t channels) {                \
    return Int8Depthwise<S>::Items(channels);                                 \
  }                                                                           \
  template <>                                                                 \
  void Int8DepthwiseParts<Isa>::Order(const void* of_channels,                \
                                      int64_t channels, void* ordered) {      \
    Int8Depthwise<S>::Order(of_channels, channels, ordered);                  \
  }                                                                           \
  template <>                                                                 \
  int64_t Int8DepthwiseParts<Isa>::ScratchBytes(                              \
      const Window& window, int64_t out_width, int64_t channels) {            \
    return Int8Depthwise<S>::ScratchBytes(window, out_width, channels);       \
  }                                                                           \
  template <>                                                                 \
  void Int8DepthwiseParts<Isa>::Run(const Int8DepthwiseArgs& args) {          \
    Int8Depthwise<S>::Run(args);                                              \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::MaxPool(const Int8PoolArgs& args) {                    \
    Int8Windows<S>::MaxPool(args);                                            \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::Affine(const Int8AffineArgs& args) {                   \
    Int8Windows<S>::Affine(args);                                             \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::Mix(const Int8MixArgs& args) {                         \
    Int8Windows<S>::Mix(args);                                                \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::Quantise(const float* x, int64_t n, float scale,       \
                                int32_t zero, uint8_t* y) {                   \
    Int8Windows<S>::Quantise(x, n, scale, zero, y);                           \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::Dequantise(const uint8_t* x, int64_t n, float scale,   \
                                  int32_t zero, float* y) {                   \
    Int8Windows<S>::Dequantise(x, n, scale, zero, y);                         \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::Lookup(const uint8_t* table, const uint8_t* x,         \
                              int64_t n, uint8_t* y) {                        \
    S::Lookup(table, x, n, y);                                                \
  }                                                                           \
  template <>                                                                 \
  void Int8Parts<Isa>::ColumnSums(const uint8_t* x, int64_t rows, int64_t n,  \
                                  int64_t ld_x, int32_t* sums) {              \
    Int8Windows<S>::ColumnSums(x, rows, n, ld_x, sums);                       \
  }
