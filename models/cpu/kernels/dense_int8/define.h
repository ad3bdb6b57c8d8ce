// The functions of one int8 table by its vectors: for the one file that an
// instruction set compiles. Isa is a name of parts.h, S what gemm.h says.
#pragma once

#include "models/cpu/kernels/dense_int8/conv.h"
#include "models/cpu/kernels/dense_int8/parts.h"
#include "models/cpu/kernels/dense_int8/windows.h"

#define MILLRACE_DEFINE_INT8(Isa, S)                                           \
  template <>                                                                  \
  int64_t Int8Parts<Isa>::PackedBytes(const int8_t* w, int64_t n, int64_t k) { \
    return Int8Gemm<S>::PackedBytes(w, n, k);                                  \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::Pack(const int8_t* w, int64_t n, int64_t k,             \
                            int8_t* packed) {                                  \
    Int8Gemm<S>::Pack(w, n, k, packed);                                        \
  }                                                                            \
  template <>                                                                  \
  int64_t Int8Parts<Isa>::ConvScratchBytes(int64_t k) {                        \
    return Int8Conv<S>::ScratchBytes(k);                                       \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::Conv(const Int8ConvArgs& args) {                        \
    Int8Conv<S>::Run(args);                                                    \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::Depthwise(const Int8DepthwiseArgs& args) {              \
    Int8Windows<S>::Depthwise(args);                                           \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::MaxPool(const Int8PoolArgs& args) {                     \
    Int8Windows<S>::MaxPool(args);                                             \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::Quantise(const float* x, int64_t n, float scale,        \
                                int32_t zero, uint8_t* y) {                    \
    Int8Windows<S>::Quantise(x, n, scale, zero, y);                            \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::Dequantise(const uint8_t* x, int64_t n, float scale,    \
                                  int32_t zero, float* y) {                    \
    Int8Windows<S>::Dequantise(x, n, scale, zero, y);                          \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::Lookup(const uint8_t* table, const uint8_t* x,          \
                              int64_t n, uint8_t* y) {                         \
    S::Lookup(table, x, n, y);                                                 \
  }                                                                            \
  template <>                                                                  \
  void Int8Parts<Isa>::ColumnSums(const uint8_t* x, int64_t rows, int64_t n,   \
                                  int64_t ld_x, int32_t* sums) {               \
    Int8Windows<S>::ColumnSums(x, rows, n, ld_x, sums);                        \
  }
