// Tables that multiply BF16 weights by bf16 rows: rounding, the chain of
// llm_kernels.h bit for bit, its distance from plain double precision, and that
// neither the tile nor the share of groups shows.

#include <cmath>
#include <limits>

#include "tests/backend/kernels/amx_emulated.h"
#include "tests/backend/kernels/tables.h"

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

// Half of the last kept place is added, and one less where that place is even,
// so that a tie goes to the even neighbour.
uint16_t Round(float x) {
  const uint32_t bits = Bits(Flush(x));
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float Step(uint16_t w, uint16_t x, float acc) {
  return Flush(std::fma(Flush(OfBf16(w)), Flush(OfBf16(x)), Flush(acc)));
}

// The chain of amx; x holds whole pairs.
float DotInTiles(const std::vector<uint16_t>& w, const uint16_t* x) {
  float acc = 0;
  const size_t k = w.size();
  for (size_t step = 0; step < k; step += 32) {
    float u[2] = {0, 0};
    for (size_t i = step; i < step + 32; ++i) {
      u[i % 2] = i < k ? Step(w[i], x[i], u[i % 2]) : Step(0, 0, u[i % 2]);
    }
    acc = Flush(acc + Flush(u[0] + u[1]));
  }
  return acc;
}

float Dot(const KernelTable& t, const std::vector<uint16_t>& w,
          const uint16_t* x) {
  if (std::string(t.name) == "amx") return DotInTiles(w, x);
  float a[4] = {0, 0, 0, 0};
  const size_t k = w.size();
  for (size_t i = 0; i < k; i += 2) {
    float& acc = a[i / 2 % 4];
    acc = i + 1 < k ? Step(w[i + 1], x[i + 1], acc) : Step(0, 0, acc);
    acc = Step(w[i], x[i], acc);
  }
  return (a[0] + a[1]) + (a[2] + a[3]);
}

// ---- one matrix and its rows ----

class Bf16 : public EmulatedKernelTest {};

struct Problem {
  Problem(std::mt19937& rng, const KernelTable& t, int64_t outputs,
          int64_t columns, int32_t num_rows)
      : table(t),
        n(outputs),
        k(columns),
        rows(num_rows),
        ld_x(columns + columns % 2),
        groups((n + t.row_group - 1) / t.row_group),
        x(rows * k),
        rounded(rows * ld_x, 0xffff),
        packed(groups * t.group_bytes(WeightFormat::kBF16, k), 0xee) {
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < n; ++r) {
      std::vector<uint16_t> row;
      for (int64_t i = 0; i < k; ++i) row.push_back(Round(normal(rng)));
      w.push_back(row);
    }
    FillNormal(rng, x);
  }

  void Prepare() {
    for (int32_t m = 0; m < rows; ++m) {
      table.round_row(x.data() + m * k, k, rounded.data() + m * ld_x);
    }
    matrix = {packed.data(), WeightFormat::kBF16, n, k,
              table.group_bytes(WeightFormat::kBF16, k)};
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<const void*> from;
      for (int64_t r = g * table.row_group;
           r < n && r < (g + 1) * table.row_group; ++r) {
        from.push_back(w[r].data());
      }
      ASSERT_TRUE(table.pack_group(WeightFormat::kBF16, from.data(),
                                   static_cast<int32_t>(from.size()), k,
                                   packed.data() + g * matrix.group_bytes));
    }
  }

  void Run(int64_t begin, int64_t end, int32_t first, int32_t count, float* y,
           int64_t ld_y) const {
    ActRows act;
    act.bf16 = rounded.data() + first * ld_x;
    act.ld_bf16 = ld_x;
    table.linear(matrix, begin, end, act, count, y, ld_y);
  }

  const KernelTable& table;
  int64_t n, k;
  int32_t rows;
  int64_t ld_x, groups;
  std::vector<std::vector<uint16_t>> w;
  Floats x;
  Buffer<uint16_t> rounded;
  Buffer<uint8_t> packed;
  PackedMatrix matrix;
};

TEST_P(Bf16, RoundingIsToNearestEvenAndOddRowsGetAZero) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               inf,
                               -inf,
                               0x1.01p0f,
                               0x1.03p0f,
                               0x1.010002p0f,  // ties to even, above a tie
                               -0x1.01p0f,
                               -0x1.03p0f,
                               0x1.fep127f,
                               0x1.ffp127f,  // last is infinite
                               0x1p-126f,
                               0x1.ffp-127f,
                               0x1p-149f,
                               -0x1p-130f,
                               std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  while (values.size() < 100) values.push_back(normal(rng));
  for (const int64_t k : {1, 2, 15, 16, 17, 31, 32, 33, 100}) {
    Buffer<uint16_t> out(k + k % 2, 0xffff);
    Floats in(k);
    for (int64_t i = 0; i < k; ++i) in[i] = values[i];
    table().round_row(in.data(), k, out.data());
    for (int64_t i = 0; i < k; ++i) {
      EXPECT_EQ(out[i], Round(values[i])) << i << ": " << values[i];
    }
    if (k % 2 == 1) {
      EXPECT_EQ(out[k], 0);
    }
  }
}

TEST_P(Bf16, EveryOutputIsTheDocumentedChainAndNearTheExactSum) {
  std::mt19937 rng(2);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1},
                             {7, 2},
                             {16, 3},
                             {21, 9},
                             {33, 96},
                             {17, 575},
                             {70, 100},
                             {40, 1536}}) {
    for (const int32_t rows : {1, 2, 3, 4, 5, 6, 7, 18, 32, 33, 64}) {
      Problem p(rng, table(), n, k, rows);
      ASSERT_NO_FATAL_FAILURE(p.Prepare());
      const int64_t ld = n + 3;  // three columns that stay unwritten
      Floats y(rows * ld, -7.0f);
      p.Run(0, p.groups, 0, rows, y.data(), ld);
      for (int32_t m = 0; m < rows; ++m) {
        const uint16_t* x = p.rounded.data() + m * p.ld_x;
        for (int64_t r = 0; r < n; ++r) {
          ASSERT_EQ(Bits(y[m * ld + r]), Bits(Dot(table(), p.w[r], x)))
              << n << " x " << k << ", row " << m << ", output " << r;
          double exact = 0;
          double magnitude = 0;
          for (int64_t i = 0; i < k; ++i) {
            const double term = double{OfBf16(p.w[r][i])} * p.x[m * k + i];
            exact += term;
            magnitude += std::abs(term);
          }
          // Rounding x to 8 bits moves each term by 2^-8 of itself at most;
          // then one rounding for each column of a strand and for each join.
          // The amx strands are 16 long, and two joins follow each.
          const double roundings = static_cast<double>(k) / 4 + 20;
          const double limit = (0x1p-8 + roundings * kUnit) * magnitude;
          ASSERT_NEAR(y[m * ld + r], exact, limit);
        }
        for (int64_t r = n; r < ld; ++r) ASSERT_EQ(y[m * ld + r], -7.0f);
      }
    }
  }
}

TEST_P(Bf16, SubnormalsCountAsZeroAndNothingElseIsLost) {
  std::mt19937 rng(3);
  std::uniform_int_distribution<int> exponent(0, 6);
  std::uniform_int_distribution<int> shift(60, 80);
  Problem p(rng, table(), 48, 64, 3);
  for (auto& row : p.w) {
    for (uint16_t& bits : row) {  // subnormal now and then
      bits = static_cast<uint16_t>((bits & 0x807f) | exponent(rng) << 7);
    }
  }
  // Products from far below to just above the least normal float.
  for (int64_t i = 0; i < p.x.size(); ++i) {
    p.x[i] = std::ldexp(p.x[i], i % 3 == 0 ? -140 : shift(rng) - 70);
  }
  ASSERT_NO_FATAL_FAILURE(p.Prepare());
  Floats y(p.rows * p.n);
  p.Run(0, p.groups, 0, p.rows, y.data(), p.n);
  for (int32_t m = 0; m < p.rows; ++m) {
    for (int64_t r = 0; r < p.n; ++r) {
      ASSERT_EQ(Bits(y[m * p.n + r]),
                Bits(Dot(table(), p.w[r], p.rounded.data() + m * p.ld_x)));
    }
  }
}

TEST_P(Bf16, NeitherTheTileNorTheShareOfGroupsShows) {
  std::mt19937 rng(4);
  Problem p(rng, table(), 1030, 288, 200);  // more than one cache panel
  ASSERT_NO_FATAL_FAILURE(p.Prepare());
  Floats all(p.rows * p.n);
  p.Run(0, p.groups, 0, p.rows, all.data(), p.n);
  for (const int32_t count : {1, 7, 16, 33, 64}) {
    for (const int32_t first : {0, 11, p.rows - count}) {
      Floats part(count * p.n);
      p.Run(0, 3, first, count, part.data(), p.n);
      p.Run(3, p.groups, first, count, part.data(), p.n);
      EXPECT_EQ(
          BitDifference(part.data(), all.data() + first * p.n, part.size()),
          "");
    }
  }
}

TEST_P(Bf16, SoManyRowsThatTheyAreCut) {
  std::mt19937 rng(5);
  Problem p(rng, table(), 20, 35, 1100);
  ASSERT_NO_FATAL_FAILURE(p.Prepare());
  Floats y(p.rows * p.n);
  p.Run(0, p.groups, 0, p.rows, y.data(), p.n);
  for (int32_t m = 0; m < p.rows; ++m) {
    for (int64_t r = 0; r < p.n; ++r) {
      ASSERT_EQ(Bits(y[m * p.n + r]),
                Bits(Dot(table(), p.w[r], p.rounded.data() + m * p.ld_x)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Bf16, ::testing::Values("avx512bf16", "amx"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });
INSTANTIATE_EMULATED_KERNEL_TESTS(Bf16);

}  // namespace
}  // namespace millrace::models
