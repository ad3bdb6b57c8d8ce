// Products of bf16 on AMX. Packing is that of AVX-512 BF16, whole steps of k
// long: two tiles of weights lie beside each other, 128 bytes from row to row.

#include "models/cpu/kernels/amx/cpu_tiles.h"
#include "models/cpu/kernels/amx/dense_conv.h"
#include "models/cpu/kernels/amx/dense_gemm.h"
#include "models/cpu/kernels/avx512bf16/bf16_panels.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

using Rows = DenseRows<CpuTiles>;

}  // namespace

template <>
int64_t DenseParts<AmxBf16Isa>::PackedFloats(int64_t n, int64_t k) {
  constexpr int64_t kPanel = Bf16Panels::kPanel;
  return (n + kPanel - 1) / kPanel * kPanel * Rows::Words(k);
}

template <>
void DenseParts<AmxBf16Isa>::Pack(const float* w, int64_t n, int64_t k,
                                  MatrixStrides strides, int64_t panel_begin,
                                  int64_t panel_end, float* packed) {
  Bf16Panels::Pack(w, n, k, Rows::Words(k), strides, panel_begin, panel_end,
                   packed);
}
template <>
void DenseParts<AmxBf16Isa>::PackBf16(const Bf16* w, int64_t n, int64_t k,
                                      MatrixStrides strides,
                                      int64_t panel_begin, int64_t panel_end,
                                      float* packed) {
  Bf16Panels::Pack(w, n, k, Rows::Words(k), strides, panel_begin, panel_end,
                   packed);
}

template <>
int64_t DenseParts<AmxBf16Isa>::GemmScratchFloats(const GemmArgs& args) {
  return Rows::ScratchFloats(args);
}
template <>
void DenseParts<AmxBf16Isa>::Gemm(const GemmArgs& args) {
  CpuTiles tiles;
  if (args.x_bf16 != nullptr) {
    Rows::Run(tiles, args, args.x_bf16);
  } else {
    Rows::Run(tiles, args, args.x);
  }
}

template <>
int64_t DenseParts<AmxBf16Isa>::ConvScratchFloats(const ConvArgs& args) {
  return TileConv<CpuTiles, float>::ScratchFloats(args);
}
template <>
void DenseParts<AmxBf16Isa>::Conv(const ConvArgs& args) {
  CpuTiles tiles;
  if (args.x_bf16 != nullptr) {
    TileConv<CpuTiles, Bf16>::Run(tiles, args, args.x_bf16);
  } else {
    TileConv<CpuTiles, float>::Run(tiles, args, args.x.data);
  }
}

}  // namespace millrace::models
