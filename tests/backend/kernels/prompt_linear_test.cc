// prompt_linear of every integer format: the chain of llm_kernels.h bit for
// bit, its distance from plain double precision, and that neither the number of
// tokens nor the share of groups shows.

#include <algorithm>
#include <cmath>

#include "tests/backend/kernels/amx_emulated.h"
#include "tests/backend/kernels/tables.h"
#include "tests/backend/kernels/weights.h"

namespace millrace::models {
namespace {

// ---- the oracle: llm_kernels.h, word for word ----

float OfBf16(uint16_t bits) {
  return __builtin_bit_cast(float, uint32_t{bits} << 16);
}

// A subnormal becomes a zero of its sign.
float Flush(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

// To nearest even; no NaN and no infinity comes here.
uint16_t Round(float x) {
  const uint32_t bits = Bits(Flush(x));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Sums of steps of 32 columns, each of two strands. x and w are bf16 as f32.
float Chain(const float* w, const float* x, int64_t k) {
  float acc = 0;
  for (int64_t step = 0; step < k; step += 32) {
    float u[2] = {0, 0};
    for (int64_t i = step; i < step + 32; ++i) {
      u[i % 2] = Flush(std::fma(Flush(w[i]), Flush(x[i]), u[i % 2]));
    }
    acc = Flush(acc + Flush(u[0] + u[1]));
  }
  return acc;
}

// ---- one matrix and its rows ----

struct Problem {
  Problem(std::mt19937& rng, const KernelTable& t, WeightFormat format,
          int64_t outputs, int64_t columns, int32_t num_rows)
      : table(t),
        n(outputs),
        k(WholeColumns(format, columns)),
        rows(num_rows),
        ld_x(k + 32),
        groups((n + t.row_group - 1) / t.row_group),
        w(n * k),
        x(rows * k),
        rounded(rows * ld_x, 0xffff),
        packed(groups * t.group_bytes(format, k), 0xee) {
    const FileFormat& f = FileFormatOf(format);
    std::vector<std::vector<uint8_t>> file;
    for (int64_t r = 0; r < n; ++r) {
      file.push_back(RandomRow(rng, f, k));
      EXPECT_TRUE(
          DequantizeRow(f.type, file.back().data(), k, w.data() + r * k));
    }
    matrix = {packed.data(), format, n, k, t.group_bytes(format, k)};
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<const void*> from;
      for (int64_t r = g * t.row_group; r < n && r < (g + 1) * t.row_group;
           ++r) {
        from.push_back(file[r].data());
      }
      EXPECT_TRUE(t.pack_group(format, from.data(),
                               static_cast<int32_t>(from.size()), k,
                               packed.data() + g * matrix.group_bytes));
    }
    FillNormal(rng, x);
    for (int32_t m = 0; m < rows; ++m) {
      table.round_row(x.data() + m * k, k, rounded.data() + m * ld_x);
    }
  }

  void Run(int64_t begin, int64_t end, int32_t first, int32_t count, float* y,
           int64_t ld_y) const {
    ActRows act;
    act.bf16 = rounded.data() + first * ld_x;
    act.ld_bf16 = ld_x;
    Buffer<uint8_t> scratch(table.prompt_linear_scratch_bytes(matrix, count),
                            0xee);
    EXPECT_TRUE(table.prompt_linear(matrix, begin, end, act, count, y, ld_y,
                                    scratch.data()));
  }

  const KernelTable& table;
  int64_t n, k;
  int32_t rows;
  int64_t ld_x, groups;
  Floats w, x;  // [n][k] unpacked, [rows][k]
  Buffer<uint16_t> rounded;
  Buffer<uint8_t> packed;
  PackedMatrix matrix;
};

// n outputs of every row are the chain; the columns beyond are untouched.
void ExpectChain(const Problem& p, const Floats& y, int64_t ld_y) {
  Floats w(p.n * p.k), x(p.rows * p.k);
  for (int64_t i = 0; i < w.size(); ++i) w[i] = OfBf16(Round(p.w[i]));
  for (int64_t i = 0; i < x.size(); ++i) x[i] = OfBf16(Round(p.x[i]));
  for (int32_t m = 0; m < p.rows; ++m) {
    for (int64_t r = 0; r < p.n; ++r) {
      ASSERT_EQ(Bits(y[m * ld_y + r]),
                Bits(Chain(w.data() + r * p.k, x.data() + m * p.k, p.k)))
          << "row " << m << ", output " << r;
    }
    for (int64_t r = p.n; r < ld_y; ++r) ASSERT_EQ(y[m * ld_y + r], -7.0f);
  }
}

class PromptLinear : public EmulatedKernelTest {};

TEST_P(PromptLinear, EveryOutputIsTheDocumentedChain) {
  std::mt19937 rng(1);
  for (const FileFormat& f : kFileFormats) {
    // 864 and 1536 columns: two runs, and whole runs alone.
    for (const auto& [n, columns] : {std::pair<int64_t, int64_t>{1, 32},
                                     {16, 64},
                                     {21, 288},
                                     {37, 768},
                                     {53, 864},
                                     {33, 1536}}) {
      for (const int32_t rows : {1, 7, 16, 17, 33}) {
        SCOPED_TRACE("format " + std::to_string(static_cast<int>(f.format)) +
                     " n " + std::to_string(n) + " columns " +
                     std::to_string(columns) + " rows " + std::to_string(rows));
        const Problem p(rng, table(), f.format, n, columns, rows);
        const int64_t ld = n + 3;  // three columns that stay unwritten
        Floats y(rows * ld, -7.0f);
        p.Run(0, p.groups, 0, rows, y.data(), ld);
        ASSERT_NO_FATAL_FAILURE(ExpectChain(p, y, ld));
      }
    }
  }
}

// 11 groups of one run and 35 of two: more than are converted at a time.
TEST_P(PromptLinear, NeitherTokensNorTheShareOfGroupsShow) {
  std::mt19937 rng(2);
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{170, 288}, {550, 1024}}) {
    const Problem p(rng, table(), WeightFormat::kQ4_1, n, k, 200);
    Floats all(p.rows * n);
    p.Run(0, p.groups, 0, p.rows, all.data(), n);
    for (const int32_t tokens : {1, 7, 16, 33, 64}) {
      Floats part(p.rows * n, -7.0f);
      const int32_t first = p.rows - tokens;
      const int64_t share = tokens % 5 + 1;
      p.Run(0, share, first, tokens, part.data() + first * n, n);
      p.Run(share, p.groups, first, tokens, part.data() + first * n, n);
      EXPECT_EQ(BitDifference(part.data() + first * n, all.data() + first * n,
                              tokens * n),
                "");
    }
  }
}

TEST_P(PromptLinear, MoreTokensThanOneChunk) {
  std::mt19937 rng(3);
  const Problem p(rng, table(), WeightFormat::kQ8_0, 20, 64, 1100);
  Floats y(p.rows * p.n, -7.0f);
  p.Run(0, p.groups, 0, p.rows, y.data(), p.n);
  ExpectChain(p, y, p.n);
}

TEST_P(PromptLinear, AShareOfGroupsLeavesTheOthersAlone) {
  std::mt19937 rng(4);
  const Problem p(rng, table(), WeightFormat::kQ4_K, 64, 1024, 5);
  Floats y(p.rows * p.n, -7.0f);
  p.Run(1, 2, 0, p.rows, y.data(), p.n);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t r = i % p.n;
    EXPECT_EQ(y[i] != -7.0f, r >= 16 && r < 32) << i;
  }
}

// Rounding to 8 bits moves a number by at most 2^-8 of itself, by 1.6e-3 rms
// where its bits are random; weights and rows are both rounded, and errors of
// many terms add up as squares: 2.3e-3 of the sum's own rms.
TEST_P(PromptLinear, IsNearTheExactSum) {
  std::mt19937 rng(5);
  for (const FileFormat& f : kFileFormats) {
    const Problem p(rng, table(), f.format, 64, 1536, 64);
    Floats y(p.rows * p.n);
    p.Run(0, p.groups, 0, p.rows, y.data(), p.n);
    double error = 0;
    double size = 0;
    for (int32_t m = 0; m < p.rows; ++m) {
      for (int64_t r = 0; r < p.n; ++r) {
        double exact = 0;
        double magnitude = 0;
        for (int64_t i = 0; i < p.k; ++i) {
          const double term = double{p.w[r * p.k + i]} * p.x[m * p.k + i];
          exact += term;
          magnitude += std::abs(term);
        }
        const double off = y[m * p.n + r] - exact;
        // Two roundings to 8 bits, and one to 24 for each column of a strand
        // and for each join.
        const double roundings = 20 + static_cast<double>(p.k) / 16;
        ASSERT_LE(std::abs(off), (0x1.02p-7 + roundings * kUnit) * magnitude);
        error += off * off;
        size += exact * exact;
      }
    }
    EXPECT_LT(std::sqrt(error / size), 2.8e-3) << static_cast<int>(f.format);
  }
}

// BF16 weights of several runs and chunks: the bits of linear.
TEST_P(PromptLinear, Bf16WeightsGetTheBitsOfLinear) {
  std::mt19937 rng(6);
  std::normal_distribution<float> normal;
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{37, 96}, {300, 1056}}) {
    Buffer<uint16_t> packed((n + 15) / 16 * 16 * k);
    for (int64_t i = 0; i < packed.size(); ++i) packed[i] = Round(normal(rng));
    const PackedMatrix w{packed.data(), WeightFormat::kBF16, n, k, 32 * k};
    constexpr int32_t kRows = 70;
    Buffer<uint16_t> x(kRows * k);
    for (int64_t i = 0; i < x.size(); ++i) x[i] = Round(normal(rng));
    ActRows act;
    act.bf16 = x.data();
    act.ld_bf16 = k;
    Floats y(kRows * n), want(kRows * n);
    Buffer<uint8_t> scratch(table().prompt_linear_scratch_bytes(w, kRows));
    const int64_t groups = (n + 15) / 16;
    ASSERT_TRUE(table().prompt_linear(w, 0, groups, act, kRows, y.data(), n,
                                      scratch.data()));
    table().linear(w, 0, groups, act, kRows, want.data(), n);
    EXPECT_EQ(BitDifference(y.data(), want.data(), y.size()), "");
  }
}

TEST_P(PromptLinear, OtherFloatWeightsAreLeftToTheCaller) {
  ActRows act;
  for (const auto& [format, k] :
       {std::pair{WeightFormat::kF16, 32}, std::pair{WeightFormat::kF32, 32},
        std::pair{WeightFormat::kBF16, 33}}) {
    const PackedMatrix w{nullptr, format, 16, k, 2048};
    EXPECT_EQ(table().prompt_linear_scratch_bytes(w, 4), 0);
    EXPECT_FALSE(table().prompt_linear(w, 0, 1, act, 4, nullptr, 16, nullptr));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, PromptLinear, ::testing::Values("amx"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });
INSTANTIATE_EMULATED_KERNEL_TESTS(PromptLinear);

}  // namespace
}  // namespace millrace::models
