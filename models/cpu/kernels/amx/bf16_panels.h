// Products of bf16 rows with weights that lie as tiles of bf16: the loop that
// BF16 weights and the rows of prompts share. 32 tokens meet two groups of 16
// outputs, so that four tile loads serve four products:
//
//                 w of group 0   w of group 1      tiles 6 and 7
//   tokens  0-15       C0             C1           tile 4
//   tokens 16-31       C2             C3           tile 5
//
// A panel holds, for each group, one tile for each step of 32 columns,
// ascending; in a tile word (p, r) is columns 2p and 2p + 1 of row r.
//
// Sums leave a tile only as f32 and come back as C, so the chain of
// llm_kernels.h shows neither how many tokens a block has nor where a run of
// columns ends.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/tile_config.h"

namespace millrace::models {
namespace {

constexpr int kTileTokens = 16;
constexpr int kBlockTokens = 2 * kTileTokens;
constexpr int64_t kStepColumns = 32;
constexpr int64_t kStepBytes = 1024;  // of one group
constexpr int64_t kTileFloats = 16 * 16;
constexpr int64_t kBlockFloats = 4 * kTileFloats;

// The tiles' shapes, configured again only when the number of tokens changes.
template <typename Tiles>
class BlockTiles {
 public:
  explicit BlockTiles(Tiles& tiles) : tiles_(tiles) {}

  void Fit(int tokens) {
    if (tokens == tokens_) return;
    tokens_ = tokens;
    const int first = tokens < kTileTokens ? tokens : kTileTokens;
    TileConfig config;
    config.Shape(0, first, 64);
    config.Shape(1, first, 64);
    config.Shape(4, first, 64);
    if (tokens > kTileTokens) {
      config.Shape(2, tokens - kTileTokens, 64);
      config.Shape(3, tokens - kTileTokens, 64);
      config.Shape(5, tokens - kTileTokens, 64);
    }
    config.Shape(6, 16, 64);
    config.Shape(7, 16, 64);
    tiles_.Configure(config);
  }
  void Release() {
    if (tokens_ > 0) tiles_.Release();
  }

 private:
  Tiles& tiles_;
  int tokens_ = 0;
};

// Rows of tokens from the first column of a run on.
struct TokenRows {
  const uint16_t* x;
  int64_t ld_x;
  int64_t num_rows;
};

// One or two neighbouring groups over a run of columns.
struct Panel {
  const uint8_t* tiles;  // of the first group
  int64_t group_bytes;   // to those of the second
  int groups;
  int64_t steps;
};

// Where the outputs of a panel's groups go.
struct Outputs {
  float* y;  // first output of the first token
  int64_t ld_y;
  int64_t live;  // outputs that exist; the last group may be partial
  // All outputs of the call are more than L2 keeps: each block asks for its
  // lines a thousand clocks before it stores them.
  bool far;

  static bool AreFar(int64_t num_rows, int64_t num_outputs) {
    return num_rows * num_outputs > 256 << 10;
  }
};

// ---- one block: up to 32 tokens, one or two groups ----

template <int kTokenTiles, int kGroups, typename Tiles>
inline void ZeroSums(Tiles& tiles) {
  tiles.template Zero<0>();
  if constexpr (kGroups == 2) tiles.template Zero<1>();
  if constexpr (kTokenTiles == 2) {
    tiles.template Zero<2>();
    if constexpr (kGroups == 2) tiles.template Zero<3>();
  }
}

// Sums wait between runs of columns as tiles, one after the other. (Not in y:
// its rows may be a power of two apart, which meets few sets of the caches.)
template <int kTokenTiles, int kGroups, typename Tiles>
inline void LoadSums(Tiles& tiles, const float* sums) {
  tiles.template Load<0>(sums, 64);
  if constexpr (kGroups == 2) tiles.template Load<1>(sums + kTileFloats, 64);
  if constexpr (kTokenTiles == 2) {
    tiles.template Load<2>(sums + 2 * kTileFloats, 64);
    if constexpr (kGroups == 2) {
      tiles.template Load<3>(sums + 3 * kTileFloats, 64);
    }
  }
}

template <int kTokenTiles, int kGroups, typename Tiles>
inline void StoreSums(Tiles& tiles, float* sums) {
  tiles.template Store<0>(sums, 64);
  if constexpr (kGroups == 2) tiles.template Store<1>(sums + kTileFloats, 64);
  if constexpr (kTokenTiles == 2) {
    tiles.template Store<2>(sums + 2 * kTileFloats, 64);
    if constexpr (kGroups == 2) {
      tiles.template Store<3>(sums + 3 * kTileFloats, 64);
    }
  }
}

// One tile of sums as outputs of `tokens` tokens, `live` of a group's 16.
template <int kTile, typename Tiles>
inline void StoreOutput(Tiles& tiles, int64_t tokens, float* y, int64_t ld_y,
                        int64_t live) {
  if (live >= 16) {
    tiles.template Store<kTile>(y, 4 * ld_y);
    return;
  }
  alignas(64) float sums[kTileFloats];
  tiles.template Store<kTile>(sums, 64);
  const auto mask = static_cast<__mmask16>((1u << live) - 1);
  for (int64_t t = 0; t < tokens; ++t) {
    _mm512_mask_storeu_ps(y + t * ld_y, mask, _mm512_load_ps(sums + 16 * t));
  }
}

template <int kTokenTiles, int kGroups, typename Tiles>
inline void StoreOutputs(Tiles& tiles, int64_t tokens, const Outputs& out) {
  const int64_t first = kTokenTiles == 2 ? kTileTokens : tokens;
  StoreOutput<0>(tiles, first, out.y, out.ld_y, out.live);
  if constexpr (kGroups == 2) {
    StoreOutput<1>(tiles, first, out.y + 16, out.ld_y, out.live - 16);
  }
  if constexpr (kTokenTiles == 2) {
    float* y = out.y + kTileTokens * out.ld_y;
    StoreOutput<2>(tiles, tokens - first, y, out.ld_y, out.live);
    if constexpr (kGroups == 2) {
      StoreOutput<3>(tiles, tokens - first, y + 16, out.ld_y, out.live - 16);
    }
  }
}

// Asks for the lines of tokens 2i and 2i + 1 of a block, to be written.
inline void AskForOutputs(const Outputs& out, int64_t i) {
  const float* even = out.y + 2 * i * out.ld_y;
  const float* odd = even + out.ld_y;
  asm volatile("prefetchw %0" : : "m"(even[0]));
  asm volatile("prefetchw %0" : : "m"(even[16]));
  asm volatile("prefetchw %0" : : "m"(odd[0]));
  asm volatile("prefetchw %0" : : "m"(odd[16]));
}

// Adds the products of all steps to the sums. kStreamed: the panel is used
// again for other tokens and should stay in L1, so these keep out of it. `far`:
// outputs to ask for, or null.
template <int kTokenTiles, int kGroups, bool kStreamed, typename Tiles>
inline void AddSteps(Tiles& tiles, const uint16_t* x, int64_t ld_x,
                     const Panel& panel, const Outputs* far) {
  const int64_t stride = 2 * ld_x;
  const uint16_t* second = x + kTileTokens * ld_x;
  const uint8_t* w = panel.tiles;
  for (int64_t i = 0; i < panel.steps; ++i) {
    if (kStreamed && far != nullptr && i < kTileTokens) AskForOutputs(*far, i);
    tiles.template Load<6>(w, 64);
    if constexpr (kStreamed) {
      tiles.template LoadStreamed<4>(x, stride);
    } else {
      tiles.template Load<4>(x, stride);
    }
    tiles.template DotBf16<0, 4, 6>();
    if constexpr (kGroups == 2) {
      tiles.template Load<7>(w + panel.group_bytes, 64);
      tiles.template DotBf16<1, 4, 7>();
    }
    if constexpr (kTokenTiles == 2) {
      if constexpr (kStreamed) {
        tiles.template LoadStreamed<5>(second, stride);
      } else {
        tiles.template Load<5>(second, stride);
      }
      tiles.template DotBf16<2, 5, 6>();
      if constexpr (kGroups == 2) tiles.template DotBf16<3, 5, 7>();
    }
    w += kStepBytes;
    x += kStepColumns;
    second += kStepColumns;
  }
}

// ---- all tokens ----

// Which of the runs of columns this is, and where sums wait between them.
struct ColumnRun {
  bool first;
  bool last;
  float* sums;  // [blocks of 32 tokens][kBlockFloats]; unused by a single run
};

template <int kTokenTiles, int kGroups, bool kStreamed, typename Tiles>
void MultiplyBlock(Tiles& tiles, const TokenRows& rows, const Panel& panel,
                   const ColumnRun& run, const Outputs& out) {
  if (run.first) {
    ZeroSums<kTokenTiles, kGroups>(tiles);
  } else {
    LoadSums<kTokenTiles, kGroups>(tiles, run.sums);
  }
  AddSteps<kTokenTiles, kGroups, kStreamed>(
      tiles, rows.x, rows.ld_x, panel, run.last && out.far ? &out : nullptr);
  if (run.last) {
    StoreOutputs<kTokenTiles, kGroups>(tiles, rows.num_rows, out);
  } else {
    StoreSums<kTokenTiles, kGroups>(tiles, run.sums);
  }
}

template <int kGroups, typename Tiles>
void MultiplyRows(Tiles& tiles, BlockTiles<Tiles>& shape, const TokenRows& rows,
                  const Panel& panel, const ColumnRun& run,
                  const Outputs& out) {
  const bool streamed = rows.num_rows > kBlockTokens;
  for (int64_t token = 0; token < rows.num_rows; token += kBlockTokens) {
    const int64_t left = rows.num_rows - token;
    const TokenRows block = {rows.x + token * rows.ld_x, rows.ld_x,
                             left < kBlockTokens ? left : kBlockTokens};
    const ColumnRun here = {run.first, run.last,
                            run.sums + token / kBlockTokens * kBlockFloats};
    const Outputs to = {out.y + token * out.ld_y, out.ld_y, out.live, out.far};
    shape.Fit(static_cast<int>(block.num_rows));
    if (block.num_rows <= kTileTokens) {
      MultiplyBlock<1, kGroups, false>(tiles, block, panel, here, to);
    } else if (streamed) {
      MultiplyBlock<2, kGroups, true>(tiles, block, panel, here, to);
    } else {
      MultiplyBlock<2, kGroups, false>(tiles, block, panel, here, to);
    }
  }
}

// All tokens by the panel's groups.
template <typename Tiles>
void MultiplyPanel(Tiles& tiles, BlockTiles<Tiles>& shape,
                   const TokenRows& rows, const Panel& panel,
                   const ColumnRun& run, const Outputs& out) {
  if (panel.groups == 2) {
    MultiplyRows<2>(tiles, shape, rows, panel, run, out);
  } else {
    MultiplyRows<1>(tiles, shape, rows, panel, run, out);
  }
}

}  // namespace
}  // namespace millrace::models
