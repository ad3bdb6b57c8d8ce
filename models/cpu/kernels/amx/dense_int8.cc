// The int8 products of AMX; layers that tiles do not take go to AVX-512 VBMI,
// whose table has all the rest. See int8_conv.h.

#include "models/cpu/kernels/amx/cpu_tiles.h"
#include "models/cpu/kernels/amx/int8_conv.h"
#include "models/cpu/kernels/avx512vbmi/lookup.h"
#include "models/cpu/kernels/avx512vnni/int8_vec16.h"
#include "models/cpu/kernels/dense_int8/parts.h"

namespace millrace::models {
namespace {

using TileConv = Int8TileConv<Int8Vec16<ByBytes>, CpuTiles>;
using Vectors = Int8Parts<Avx512VbmiBytes>;

}  // namespace

template <>
int64_t Int8Parts<AmxBytes>::PackedBytes(const int8_t* w, int64_t n,
                                         const Window& window,
                                         int64_t channels) {
  return TileConv::Takes(n, window, channels)
             ? TileConv::PackedBytes(w, n, window, channels)
             : Vectors::PackedBytes(w, n, window, channels);
}
template <>
void Int8Parts<AmxBytes>::Pack(const int8_t* w, int64_t n, const Window& window,
                               int64_t channels, int8_t* packed) {
  return TileConv::Takes(n, window, channels)
             ? TileConv::Pack(w, n, window, channels, packed)
             : Vectors::Pack(w, n, window, channels, packed);
}
template <>
int64_t Int8Parts<AmxBytes>::ConvScratchBytes(const Window& window,
                                              int64_t out_width,
                                              int64_t channels) {
  // How many outputs there are is not known here.
  const int64_t tiles = TileConv::ScratchBytes(window, out_width, channels);
  const int64_t vectors =
      Vectors::ConvScratchBytes(window, out_width, channels);
  return tiles > vectors ? tiles : vectors;
}
template <>
void Int8Parts<AmxBytes>::Conv(const Int8ConvArgs& args) {
  if (!TileConv::Takes(args.n, args.window, args.x.channels)) {
    return Vectors::Conv(args);
  }
  CpuTiles tiles;
  TileConv::Run(tiles, args);
}

}  // namespace millrace::models
