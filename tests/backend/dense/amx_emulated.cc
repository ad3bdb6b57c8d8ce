// The AMX products of graphs over emulated tiles. Compiled for AVX-512 BF16, so
// nothing here comes from a header whose functions a linker may share with the
// rest of the program.

#include "models/cpu/kernels/amx/dense_attention.h"
#include "models/cpu/kernels/amx/dense_conv.h"
#include "models/cpu/kernels/amx/dense_gemm.h"
#include "tests/backend/kernels/emulated_tiles.h"

namespace millrace::models {
namespace {

using Rows = DenseRows<EmulatedTiles>;
using Heads = TileAttention<EmulatedTiles>;

template <class Body>
void WithTiles(Body body) {
  EmulatedTiles tiles;
  body(tiles);
  if (tiles.fault || tiles.configured) __builtin_trap();
}

void Gemm(const GemmArgs& args) {
  WithTiles([&](EmulatedTiles& tiles) {
    if (args.x_bf16 != nullptr) {
      Rows::Run(tiles, args, args.x_bf16);
    } else {
      Rows::Run(tiles, args, args.x);
    }
  });
}

void Conv(const ConvArgs& args) {
  WithTiles([&](EmulatedTiles& tiles) {
    if (args.x_bf16 != nullptr) {
      TileConv<EmulatedTiles, Bf16>::Run(tiles, args, args.x_bf16);
    } else {
      TileConv<EmulatedTiles, float>::Run(tiles, args, args.x.data);
    }
  });
}

void Attention(const AttentionArgs& args) {
  WithTiles([&](EmulatedTiles& tiles) { Heads::Run(tiles, args); });
}

}  // namespace

// Declared in bf16.h, whose other contents must not be compiled here.
const DenseProducts* EmulatedAmxProducts() {
  static DenseProducts products = [] {
    DenseProducts p = *AmxBf16Products();  // packing and rounding
    p.gemm_scratch_floats = Rows::ScratchFloats;
    p.gemm = Gemm;
    p.conv_scratch_floats = TileConv<EmulatedTiles, float>::ScratchFloats;
    p.conv = Conv;
    p.attention_scratch_floats = Heads::ScratchFloats;
    p.attention = Attention;
    return p;
  }();
  return &products;
}

}  // namespace millrace::models
