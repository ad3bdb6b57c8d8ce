// Products of rows and packed matrices: against double precision with bounds
// derived from the length, bit for bit against scalar, and the same bits for a
// row whatever is computed beside it.

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

class Gemm : public DenseTest {};

struct Size {
  int64_t m, n, k;
};
// Around tiles of 6 and 12 rows, panels of 16 and 32, blocks of 96 and 192
// rows, which may be an eighth longer, and of 512 and 768 steps, links of 64.
constexpr Size kSizes[] = {
    {1, 1, 1},     {1, 200, 33},  {2, 31, 7},     {3, 129, 64},   {4, 97, 770},
    {5, 16, 100},  {7, 33, 64},   {13, 32, 17},   {15, 65, 5},    {29, 48, 9},
    {100, 40, 31}, {197, 35, 20}, {9, 70, 600},   {17, 33, 1541}, {6, 64, 128},
    {12, 32, 65},  {3, 40, 832},  {107, 17, 530}, {218, 33, 800}};

// One product with everything around it exactly as long as it must be.
struct Case {
  Case(const Size& size, std::mt19937& rng)
      : m(size.m),
        n(size.n),
        k(size.k),
        ld_x(k + 3),
        x((m - 1) * ld_x + k),
        w(n * k),
        bias(n),
        residual(m * n),
        gate(m * n) {
    FillNormal(rng, x);
    FillNormal(rng, w);
    FillNormal(rng, bias);
    FillNormal(rng, residual);
    FillNormal(rng, gate);
  }

  // All rows and panels in one call, y dense.
  GemmArgs Args(const DenseTable& t, const Floats& packed, Floats& y) const {
    return {.x = x.data(),
            .ld_x = ld_x,
            .row_end = m,
            .w = packed.data(),
            .n = n,
            .k = k,
            .panel_end = Panels(t, n),
            .y = y.data(),
            .ld_y = n};
  }

  int64_t m, n, k, ld_x;
  Floats x, w, bias, residual, gate;
};

// How many of them a term meets at most, each at most a unit of the sum of
// magnitudes.
double Roundings(int64_t k) {
  const int64_t links = (k + kDenseLink - 1) / kDenseLink;
  return static_cast<double>(std::min(k, kDenseLink) + links);
}

TEST_P(Gemm, IsNearDoublePrecision) {
  std::mt19937 rng(1);
  for (const Size& size : kSizes) {
    const Case c(size, rng);
    Floats packed(table().packed_floats(c.n, c.k));
    PackAll(table(), c.w, c.n, c.k, packed);
    Floats y(c.m * c.n);
    table().gemm(c.Args(table(), packed, y));
    for (int64_t m = 0; m < c.m; ++m) {
      for (int64_t n = 0; n < c.n; ++n) {
        double sum = 0;
        double size_of_terms = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          const double term = double{c.x[m * c.ld_x + k]} * c.w[n * c.k + k];
          sum += term;
          size_of_terms += std::abs(term);
        }
        const double bound = Roundings(c.k) * kUnit * size_of_terms;
        ASSERT_NEAR(y[m * c.n + n], sum, bound)
            << c.m << " x " << c.n << " x " << c.k << " at " << m << ", " << n;
      }
    }
  }
}

// Equal terms err to the same side: a single chain by eight times the bound.
TEST_P(Gemm, LongSumsStayNear) {
  const int64_t k = 1 << 14;
  for (const int64_t m : {1, 7}) {
    const Floats x(m * k, 1.0f), w(k, 0.1f);
    Floats packed(table().packed_floats(1, k)), y(m);
    PackAll(table(), w, 1, k, packed);
    table().gemm({.x = x.data(),
                  .ld_x = k,
                  .row_end = m,
                  .w = packed.data(),
                  .n = 1,
                  .k = k,
                  .panel_end = 1,
                  .y = y.data(),
                  .ld_y = 1});
    const double sum = double{w[0]} * k;
    for (int64_t i = 0; i < m; ++i) {
      EXPECT_NEAR(y[i], sum, Roundings(k) * kUnit * sum);
    }
  }
}

TEST_P(Gemm, GivesTheBitsOfScalar) {
  std::mt19937 rng(2);
  for (const Size& size : kSizes) {
    const Case c(size, rng);
    Floats packed(table().packed_floats(c.n, c.k));
    Floats scalar(ScalarTable().packed_floats(c.n, c.k));
    PackAll(table(), c.w, c.n, c.k, packed);
    PackAll(ScalarTable(), c.w, c.n, c.k, scalar);
    for (Unary f : {Unary::kNone, Unary::kRelu, Unary::kGeluErf}) {
      for (int parts = 0; parts < 5; ++parts) {
        Floats got(c.m * c.n), want(c.m * c.n);
        GemmArgs args = c.Args(table(), packed, got);
        args.epilogue.f = f;
        if (parts >= 1) args.epilogue.bias = c.bias.data();
        if (parts >= 2) args.epilogue.residual = c.residual.data();
        if (parts >= 3) args.epilogue.gate = c.gate.data();
        args.epilogue.residual_first = parts == 4;
        args.epilogue.ld_residual = c.n;
        args.epilogue.ld_gate = c.n;
        table().gemm(args);
        args.w = scalar.data();
        args.y = want.data();
        args.panel_end = Panels(ScalarTable(), c.n);
        ScalarTable().gemm(args);
        ASSERT_EQ(Difference(got.data(), want.data(), c.m * c.n), "")
            << c.m << " x " << c.n << " x " << c.k;
      }
    }
  }
}

TEST_P(Gemm, EpilogueStepsComeInOrder) {
  std::mt19937 rng(3);
  const Case c({13, 50, 40}, rng);
  Floats packed(table().packed_floats(c.n, c.k));
  PackAll(table(), c.w, c.n, c.k, packed);
  Floats sums(c.m * c.n), y(c.m * c.n);
  table().gemm(c.Args(table(), packed, sums));
  for (bool first : {false, true}) {
    GemmArgs args = c.Args(table(), packed, y);
    args.epilogue = {.bias = c.bias.data(),
                     .f = Unary::kClip,
                     .a = -1.5f,
                     .b = 2.0f,
                     .residual = c.residual.data(),
                     .ld_residual = c.n,
                     .residual_first = first,
                     .gate = c.gate.data(),
                     .ld_gate = c.n};
    table().gemm(args);
    for (int64_t i = 0; i < c.m * c.n; ++i) {
      float v = sums[i] + c.bias[i % c.n];
      if (first) v = v + c.residual[i];
      v = std::min(2.0f, std::max(-1.5f, v));
      v = v * c.gate[i];
      if (!first) v = v + c.residual[i];
      ASSERT_EQ(Bits(y[i]), Bits(v)) << i;
    }
  }
}

TEST_P(Gemm, RowKeepsItsBitsInEveryRange) {
  std::mt19937 rng(4);
  for (const Size& size : {Size{211, 75, 40}, Size{40, 70, 1100}}) {
    const Case c(size, rng);
    Floats packed(table().packed_floats(c.n, c.k));
    PackAll(table(), c.w, c.n, c.k, packed);
    Floats whole(c.m * c.n);
    table().gemm(c.Args(table(), packed, whole));
    const int64_t panels = Panels(table(), c.n);
    for (int64_t step : {1, 2, 3, 5, 6, 7, 11, 12, 13, 50, 193}) {
      Floats y(c.m * c.n, -7.0f);
      GemmArgs args = c.Args(table(), packed, y);
      for (int64_t row = 0; row < c.m; row += step) {
        for (int64_t panel = 0; panel < panels; panel += 1 + step % 3) {
          args.row_begin = row;
          args.row_end = std::min(c.m, row + step);
          args.panel_begin = panel;
          args.panel_end = std::min(panels, panel + 1 + step % 3);
          table().gemm(args);
        }
      }
      ASSERT_EQ(Difference(y.data(), whole.data(), c.m * c.n), "") << step;
    }
  }
}

TEST_P(Gemm, WritesNothingOutsideItsRowsAndPanels) {
  std::mt19937 rng(5);
  const Case c({20, 3 * table().panel - 5, 24}, rng);
  Floats packed(table().packed_floats(c.n, c.k));
  PackAll(table(), c.w, c.n, c.k, packed);
  const int64_t ld = c.n + 9;
  Floats y(c.m * ld, 123.0f);
  GemmArgs args = c.Args(table(), packed, y);
  args.ld_y = ld;
  args.row_begin = 3;
  args.row_end = 17;
  args.panel_begin = 1;
  args.panel_end = 3;
  table().gemm(args);
  for (int64_t m = 0; m < c.m; ++m) {
    for (int64_t n = 0; n < ld; ++n) {
      const bool inside = m >= 3 && m < 17 && n >= table().panel && n < c.n;
      ASSERT_EQ(y[m * ld + n] == 123.0f, !inside) << m << ", " << n;
    }
  }
}

TEST_P(Gemm, PacksFromEitherOrderInRanges) {
  std::mt19937 rng(6);
  const int64_t n = 2 * table().panel + 3;
  const int64_t k = 11;
  Floats w(n * k), turned(n * k);
  FillNormal(rng, w);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) turned[j * n + i] = w[i * k + j];
  }
  const int64_t floats = table().packed_floats(n, k);
  Floats a(floats), b(floats, 5.0f);
  PackAll(table(), w, n, k, a);
  for (int64_t panel = 0; panel < 3; ++panel) {
    table().pack(turned.data(), n, k, {.n = 1, .k = n}, panel, panel + 1,
                 b.data());
  }
  EXPECT_EQ(Difference(a.data(), b.data(), floats), "");
}

TEST_P(Gemm, NothingToSumGivesTheBias) {
  Floats packed(1), y(6 * 3), bias(3, 2.5f), x(1);
  GemmArgs args{.x = x.data(),
                .row_end = 6,
                .w = packed.data(),
                .n = 3,
                .panel_end = 1,
                .y = y.data(),
                .ld_y = 3};
  args.epilogue.bias = bias.data();
  table().gemm(args);
  for (int64_t i = 0; i < 18; ++i) EXPECT_EQ(y[i], 2.5f);
}

INSTANTIATE_DENSE_TESTS(Gemm);

}  // namespace
}  // namespace millrace::models
