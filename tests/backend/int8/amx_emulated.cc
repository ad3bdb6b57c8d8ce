// The AMX int8 kernels over emulated tiles. Compiled for AVX-512, so nothing
// here comes from a header whose functions a linker may share with the rest of
// the program.

#include "tests/backend/int8/amx_emulated.h"

#include "models/cpu/kernels/amx/int8_conv.h"
#include "models/cpu/kernels/avx512vbmi/lookup.h"
#include "models/cpu/kernels/avx512vnni/int8_vec16.h"
#include "tests/backend/kernels/emulated_tiles.h"

namespace millrace::models {
namespace {

using TileConv = Int8TileConv<Int8Vec16<ByBytes>, EmulatedTiles>;

}  // namespace

bool EmulatedAmxInt8::Takes(int64_t n, const Window& window, int64_t channels) {
  return TileConv::Takes(n, window, channels);
}
int64_t EmulatedAmxInt8::PackedBytes(const int8_t* w, int64_t n,
                                     const Window& window, int64_t channels) {
  return TileConv::PackedBytes(w, n, window, channels);
}
void EmulatedAmxInt8::Pack(const int8_t* w, int64_t n, const Window& window,
                           int64_t channels, int8_t* packed) {
  TileConv::Pack(w, n, window, channels, packed);
}
int64_t EmulatedAmxInt8::ScratchBytes(const Window& window, int64_t out_width,
                                      int64_t channels) {
  return TileConv::ScratchBytes(window, out_width, channels);
}
bool EmulatedAmxInt8::Conv(const Int8ConvArgs& args) {
  EmulatedTiles tiles;
  TileConv::Run(tiles, args);
  return !tiles.fault && !tiles.configured;
}

}  // namespace millrace::models
