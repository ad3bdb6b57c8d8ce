// Which products of `linear` the AMX table does in tiles, over a type `Tiles`
// as cpu_tiles.h.
#pragma once

#include "models/cpu/kernels/amx/bf16_linear.h"
#include "models/cpu/kernels/amx/integer_linear.h"

namespace millrace::models {
namespace {

template <typename Tiles>
using RunInteger = void (*)(Tiles& tiles, const PackedMatrix& w,
                            int64_t group_begin, int64_t group_end,
                            const ActRows& act, int64_t tokens, float* y,
                            int64_t ld_y);

// Null for Q2_K, whose two scales and two minima a block leave tiles 1.05 times
// as fast as VNNI at most, and for float weights.
template <typename Tiles>
RunInteger<Tiles> IntegerTilesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return RunIntegerLinear<WeightFormat::kQ8_0, Tiles>;
    case WeightFormat::kQ4_0:
      return RunIntegerLinear<WeightFormat::kQ4_0, Tiles>;
    case WeightFormat::kQ4_1:
      return RunIntegerLinear<WeightFormat::kQ4_1, Tiles>;
    case WeightFormat::kQ5_0:
      return RunIntegerLinear<WeightFormat::kQ5_0, Tiles>;
    case WeightFormat::kQ5_1:
      return RunIntegerLinear<WeightFormat::kQ5_1, Tiles>;
    case WeightFormat::kQ3_K:
      return RunIntegerLinear<WeightFormat::kQ3_K, Tiles>;
    case WeightFormat::kQ4_K:
      return RunIntegerLinear<WeightFormat::kQ4_K, Tiles>;
    case WeightFormat::kQ5_K:
      return RunIntegerLinear<WeightFormat::kQ5_K, Tiles>;
    case WeightFormat::kQ6_K:
      return RunIntegerLinear<WeightFormat::kQ6_K, Tiles>;
    case WeightFormat::kIQ4_NL:
      return RunIntegerLinear<WeightFormat::kIQ4_NL, Tiles>;
    case WeightFormat::kIQ4_XS:
      return RunIntegerLinear<WeightFormat::kIQ4_XS, Tiles>;
    case WeightFormat::kMXFP4:
      return RunIntegerLinear<WeightFormat::kMXFP4, Tiles>;
    default:
      return nullptr;
  }
}

// How many of the tokens, from the first on, are done in tiles.
template <typename Tiles>
int32_t RunTileLinear(Tiles& tiles, const PackedMatrix& w, int64_t group_begin,
                      int64_t group_end, const ActRows& act, int32_t num_rows,
                      float* y, int64_t ld_y) {
  if (w.format == WeightFormat::kBF16) {
    Bf16Linear<Tiles>(tiles, w, y, ld_y)
        .Run(group_begin, group_end, act, num_rows);
    return num_rows;
  }
  // With 16 tokens, unpacking first gains 0 to 15 % (Q4_0: 30) on weights that
  // are in L2 and loses up to 15 % on K types that are not.
  constexpr int32_t kLeastTokens = 32;
  const RunInteger<Tiles> run = IntegerTilesOf<Tiles>(w.format);
  if (run == nullptr || num_rows < kLeastTokens) return 0;
  // Half a MiB of quantised rows at a time: they stay in L2 while the caller's
  // groups pass.
  int64_t chunk = (int64_t{512} << 10) / w.k / 16 * 16;
  if (chunk < kLeastTokens) chunk = kLeastTokens;
  const int32_t tokens = num_rows / 16 * 16;
  for (int64_t token = 0; token < tokens; token += chunk) {
    const int64_t left = tokens - token;
    run(tiles, w, group_begin, group_end, Q8RowsFrom(act, token),
        left < chunk ? left : chunk, y + token * ld_y, ld_y);
  }
  return tokens;
}

}  // namespace
}  // namespace millrace::models
