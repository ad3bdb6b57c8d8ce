// The functions of the int8 tables, as kernels/dense/parts.h has those of f32.
#pragma once

#include "models/cpu/graph_int8_kernels.h"

namespace millrace::models {

struct ScalarBytes;
struct Avx2Bytes;
struct AvxVnniBytes;
struct Avx512VnniBytes;
struct Avx512VbmiBytes;
struct AmxBytes;  // products alone
struct NeonBytes;
struct NeonDotBytes;
struct NeonI8mmBytes;

template <class Isa>
struct Int8Parts {
  static int64_t PackedBytes(const int8_t* w, int64_t n, const Window& window,
                             int64_t channels);
  static void Pack(const int8_t* w, int64_t n, const Window& window,
                   int64_t channels, int8_t* packed);
  static int64_t ConvScratchBytes(const Window& window, int64_t out_width,
                                  int64_t channels);
  static void Conv(const Int8ConvArgs& args);
  static void MaxPool(const Int8PoolArgs& args);
  static void Affine(const Int8AffineArgs& args);
  static void Mix(const Int8MixArgs& args);
  static void Quantise(const float* x, int64_t n, float scale, int32_t zero,
                       uint8_t* y);
  static void Dequantise(const uint8_t* x, int64_t n, float scale, int32_t zero,
                         float* y);
  static void Lookup(const uint8_t* table, const uint8_t* x, int64_t n,
                     uint8_t* y);
  static void ColumnSums(const uint8_t* x, int64_t rows, int64_t n,
                         int64_t ld_x, int32_t* sums);
};

template <class Isa>
struct Int8DepthwiseParts {
  static int64_t Pieces(int64_t out_width, int64_t channels);
  static int64_t PackedBytes(const Window& window, int64_t channels);
  static void Pack(const int8_t* w, const Window& window, int64_t channels,
                   int8_t* packed);
  static int64_t Ordered(int64_t channels);
  static void Order(const void* of_channels, int64_t channels, void* ordered);
  static int64_t ScratchBytes(const Window& window, int64_t out_width,
                              int64_t channels);
  static void Run(const Int8DepthwiseArgs& args);
};

}  // namespace millrace::models
