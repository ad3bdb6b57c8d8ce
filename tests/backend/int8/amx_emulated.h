// The AMX table's int8 products over plain arrays instead of tiles, so that
// they are tested where no CPU has them. The machine needs AVX-512 VBMI
// nonetheless.
#pragma once

#include "models/cpu/graph_int8_kernels.h"

namespace millrace::models {

// What the functions of Int8Table of the same names are. Of packed layers that
// tiles do not take, nothing is done and Takes is false.
struct EmulatedAmxInt8 {
  static bool Takes(int64_t n, const Window& window, int64_t channels);
  static int64_t PackedBytes(const int8_t* w, int64_t n, const Window& window,
                             int64_t channels);
  static void Pack(const int8_t* w, int64_t n, const Window& window,
                   int64_t channels, int8_t* packed);
  static int64_t ScratchBytes(const Window& window, int64_t out_width,
                              int64_t channels);
  // False when a tile instruction would have been a fault, or when tiles were
  // not given back.
  static bool Conv(const Int8ConvArgs& args);
};

}  // namespace millrace::models
