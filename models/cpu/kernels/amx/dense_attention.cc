// Attention of graphs on AMX.

#include "models/cpu/kernels/amx/dense_attention.h"
#include "models/cpu/kernels/amx/cpu_tiles.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {

template <>
int64_t DenseParts<AmxBf16Isa>::AttentionScratchFloats(int64_t d, int64_t dv) {
  return TileAttention<CpuTiles>::ScratchFloats(d, dv);
}
template <>
void DenseParts<AmxBf16Isa>::Attention(const AttentionArgs& args) {
  CpuTiles tiles;
  TileAttention<CpuTiles>::Run(tiles, args);
}

}  // namespace millrace::models
