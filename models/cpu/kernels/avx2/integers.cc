// y = W x of AVX2, integer weights: which tile runs over which rows and tokens.
// Up to 3 tokens stream the weights (GEMV, bound by memory); more go through
// panels, or through tiles of 4 where weights are signed.
//
// Loops, outside in: token tile, panel of blocks, row group. Every output keeps
// its one chain over ascending blocks: it is parked in y between panels, which
// changes no bit.

#include "models/cpu/kernels/avx2/panel.h"
#include "models/cpu/kernels/avx2/parts.h"

namespace millrace::models::avx2 {
namespace {

template <WeightFormat kFormat, int kTokens>
void Gemv(const Work& work, int64_t begin, int64_t end, int64_t token) {
  const TileActs x = ActsAt(work.act, token, 0);
  const int64_t blocks = work.w.k / (32 * kParts<kFormat>);
  for (int64_t g = begin; g < end; ++g) {
    __m256 acc[kTokens];
    GemvTile<kFormat, kTokens>(work.Group(g), blocks, x, acc);
    for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
  }
}

template <WeightFormat kFormat, int kTokens>
void Panel(const Work& work, int64_t begin, int64_t end, int64_t token) {
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  constexpr int64_t kBlocks = kPanelParts<kTokens> / kParts<kFormat>;
  Spread panel[kTokens * kBlocks * kParts<kFormat>];
  const int64_t blocks = work.w.k / (32 * kParts<kFormat>);
  for (int64_t b = 0; b < blocks; b += kBlocks) {
    const int64_t count = blocks - b < kBlocks ? blocks - b : kBlocks;
    const TileActs x = ActsAt(work.act, token, b * kParts<kFormat>);
    FillPanel<kTokens>(x, count * kParts<kFormat>, panel);
    for (int64_t g = begin; g < end; ++g) {
      __m256 acc[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        acc[t] = b == 0 ? _mm256_setzero_ps() : work.Load(token + t, g);
      }
      const uint8_t* w = work.Group(g) + b * kBlock;
      PanelTile<kFormat, kTokens>(w, count, work.w.group_bytes, panel, x, acc);
      for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
    }
  }
}

template <WeightFormat kFormat>
void Run(const Work& work, int64_t group_begin, int64_t group_end,
         int64_t tokens) {
  int64_t token = 0;
  if constexpr (kSigned<kFormat>) {
    for (; token + 4 <= tokens; token += 4) {
      Gemv<kFormat, 4>(work, group_begin, group_end, token);
    }
  } else {
    for (; token + kPanelTokens <= tokens; token += kPanelTokens) {
      Panel<kFormat, kPanelTokens>(work, group_begin, group_end, token);
    }
    for (; token + 4 <= tokens; token += 4) {
      Panel<kFormat, 4>(work, group_begin, group_end, token);
    }
  }
  const int64_t left = tokens - token;
  if (left == 1) Gemv<kFormat, 1>(work, group_begin, group_end, token);
  if (left == 2) Gemv<kFormat, 2>(work, group_begin, group_end, token);
  if (left == 3) Gemv<kFormat, 3>(work, group_begin, group_end, token);
}

}  // namespace

void LinearIntegers(const PackedMatrix& w, int64_t group_begin,
                    int64_t group_end, const ActRows& act, int32_t num_rows,
                    float* y, int64_t ld_y) {
  const Work work{w, act, y, ld_y};
  const auto run = [&](auto* run_format) {
    run_format(work, group_begin, group_end, num_rows);
  };
  switch (w.format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return;
    case WeightFormat::kQ8_0:
      return run(Run<WeightFormat::kQ8_0>);
    case WeightFormat::kQ4_0:
      return run(Run<WeightFormat::kQ4_0>);
    case WeightFormat::kQ4_1:
      return run(Run<WeightFormat::kQ4_1>);
    case WeightFormat::kQ5_0:
      return run(Run<WeightFormat::kQ5_0>);
    case WeightFormat::kQ5_1:
      return run(Run<WeightFormat::kQ5_1>);
    case WeightFormat::kQ2_K:
      return run(Run<WeightFormat::kQ2_K>);
    case WeightFormat::kQ3_K:
      return run(Run<WeightFormat::kQ3_K>);
    case WeightFormat::kQ4_K:
      return run(Run<WeightFormat::kQ4_K>);
    case WeightFormat::kQ5_K:
      return run(Run<WeightFormat::kQ5_K>);
    case WeightFormat::kQ6_K:
      return run(Run<WeightFormat::kQ6_K>);
    case WeightFormat::kIQ4_NL:
      return run(Run<WeightFormat::kIQ4_NL>);
    case WeightFormat::kIQ4_XS:
      return run(Run<WeightFormat::kIQ4_XS>);
    case WeightFormat::kMXFP4:
      return run(Run<WeightFormat::kMXFP4>);
  }
}

}  // namespace millrace::models::avx2
