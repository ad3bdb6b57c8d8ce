// Attention of one head: against double precision, the same bits for a row in
// every range, and in f32 those of scalar.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "models/tensor/float16.h"
#include "tests/backend/dense/bf16.h"
#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

// By the products of each table, and by those of bf16.
class Attention : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (name == "avx512bf16" || name.starts_with("amx")) {
      table_ = Bf16ProductsOf(name);
      if (table_ == nullptr) GTEST_SKIP() << "this CPU cannot run " << name;
      rounding_ = 0x1p-8;
      return;
    }
    const auto table = ChooseDense(name);
    if (!table.ok()) GTEST_SKIP() << table.status().ToString();
    table_ = *table;
  }
  const DenseProducts& table() const { return *table_; }
  // Of the whole range in one call: those that every range must have.
  const DenseProducts& Reference() const {
    if (rounding_ == 0) return ScalarTable();
    return *table_;
  }

  const DenseProducts* table_ = nullptr;
  double rounding_ = 0;  // of each factor, beside those of f32
};

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Shape {
  int64_t rows, keys, d, dv;
  bool mask, causal;
  int64_t offset;
};
// Around panels, blocks of 48 rows and chunks of 512 keys.
constexpr Shape kShapes[] = {
    {1, 1, 8, 8, false, false, 0},     {7, 33, 64, 64, true, false, 0},
    {50, 50, 32, 32, false, true, 0},  {13, 20, 5, 19, true, true, 7},
    {3, 513, 16, 8, true, false, 0},   {60, 530, 24, 40, true, true, 470},
    {2, 1100, 12, 33, true, false, 0},
};

struct Case {
  Case(const Shape& shape, std::mt19937& rng)
      : s(shape),
        q(s.rows * (s.d + 1)),
        k(s.keys * (s.d + 2)),
        v(s.keys * (s.dv + 3)),
        mask(s.rows * s.keys) {
    FillNormal(rng, q);
    FillNormal(rng, k);
    FillNormal(rng, v);
    FillNormal(rng, mask);
    for (int64_t i = 0; i < mask.size(); i += 5) mask[i] = -kInf;
  }

  // Packs for a table and computes rows [begin, end).
  struct Packed {
    Packed(const Case& c, const DenseProducts& t)
        : k(t.packed_floats(c.s.keys, c.s.d)),
          v(t.packed_floats(c.s.dv, c.s.keys)),
          scratch(t.attention_scratch_floats(c.s.d, c.s.dv)) {
      t.pack(c.k.data(), c.s.keys, c.s.d, {.n = c.s.d + 2, .k = 1}, 0,
             Panels(t, c.s.keys), k.data());
      t.pack(c.v.data(), c.s.dv, c.s.keys, {.n = 1, .k = c.s.dv + 3}, 0,
             Panels(t, c.s.dv), v.data());
    }
    Floats k, v, scratch;
  };

  AttentionArgs Args(Packed& packed, Floats& out) const {
    AttentionArgs args{.q = q.data(),
                       .ld_q = s.d + 1,
                       .row_end = s.rows,
                       .d = s.d,
                       .dv = s.dv,
                       .num_keys = s.keys,
                       .k = packed.k.data(),
                       .v = packed.v.data(),
                       .scale = 0.3f,
                       .causal = s.causal,
                       .causal_offset = s.offset,
                       .out = out.data(),
                       .ld_out = s.dv,
                       .scratch = packed.scratch.data()};
    if (s.mask) {
      args.mask = mask.data();
      args.ld_mask = s.keys;
    }
    return args;
  }

  const Shape& s;
  Floats q, k, v, mask;
};

TEST_P(Attention, IsNearDoublePrecision) {
  std::mt19937 rng(1);
  for (const Shape& s : kShapes) {
    const Case c(s, rng);
    Case::Packed packed(c, table());
    Floats out(s.rows * s.dv);
    table().attention(c.Args(packed, out));
    for (int64_t r = 0; r < s.rows; ++r) {
      std::vector<double> p;
      double greatest = -kInf, largest = 0;
      for (int64_t key = 0; key < s.keys; ++key) {
        double score = 0, size = 0;
        for (int64_t i = 0; i < s.d; ++i) {
          const double term =
              double{c.q[r * (s.d + 1) + i]} * c.k[key * (s.d + 2) + i] * 0.3f;
          score += term;
          size += std::abs(term);
        }
        if (s.mask) score += c.mask[r * s.keys + key];
        if (s.causal && key > r + s.offset) score = -kInf;
        p.push_back(score);
        greatest = std::max(greatest, score);
        if (score > -kInf) largest = std::max(largest, size + std::abs(score));
      }
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x - greatest);
      for (int64_t i = 0; i < s.dv; ++i) {
        double want = 0, size = 0;
        for (int64_t key = 0; key < s.keys; ++key) {
          want += p[key] / sum * c.v[key * (s.dv + 3) + i];
          size += p[key] / sum * std::abs(c.v[key * (s.dv + 3) + i]);
        }
        // A score is off by d + 3 roundings of its magnitude and those of two
        // factors, and moves its weight by as much, twice since the sum moves
        // too; then the chain of values, the tree of weights and some more.
        const double score =
            largest * (static_cast<double>(s.d + 3) * kUnit + 2 * rounding_);
        const double rest =
            static_cast<double>(s.keys + s.keys / 32 + 30) * kUnit +
            2 * rounding_;
        ASSERT_NEAR(out[r * s.dv + i], want,
                    (std::expm1(2 * score) + rest) * size)
            << &s - kShapes << " row " << r;
      }
    }
  }
}

TEST_P(Attention, GivesTheSameBitsInEveryRange) {
  std::mt19937 rng(2);
  for (const Shape& s : kShapes) {
    const Case c(s, rng);
    Case::Packed packed(c, table()), whole(c, Reference());
    Floats want(s.rows * s.dv);
    Reference().attention(c.Args(whole, want));
    for (int64_t step : {int64_t{1}, int64_t{5}, s.rows}) {
      Floats got(s.rows * s.dv, -3.0f);
      AttentionArgs args = c.Args(packed, got);
      for (int64_t row = 0; row < s.rows; row += step) {
        args.row_begin = row;
        args.row_end = std::min(s.rows, row + step);
        table().attention(args);
      }
      ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "")
          << &s - kShapes << " by " << step;
    }
  }
}

// The chain that graph_kernels.h gives attention in tiles, row by row.
class TileAttentionChain {
 public:
  TileAttentionChain(const Case& c, int64_t row) : c_(c), row_(row) {}

  std::vector<float> Run() {
    const Shape& s = c_.s;
    int64_t end = s.keys;
    if (s.causal) end = std::min(end, row_ + s.offset + 1);
    std::vector<float> out(static_cast<size_t>(s.dv));
    float greatest = 0, sum = 0;
    for (int64_t key = 0; key < end; key += 512) {
      const int64_t keys = std::min<int64_t>(end - key, 512);
      const std::vector<float> scores = Scores(key, keys);
      const float m = *std::max_element(scores.begin(), scores.end());
      if (m == -kInf) continue;
      std::vector<float> p;
      for (const float score : scores) p.push_back(Power(score - m));
      float l;
      ScalarTable().reduce(ReduceKind::kSum, p.data(), 1, keys, keys, &l);
      const bool first = sum == 0;
      const float both = first ? m : std::max(greatest, m);
      const float before = first ? 0 : Power(greatest - both);
      const float now = Power(m - both);
      sum = first ? l : std::fma(sum, before, l * now);
      greatest = both;
      for (int64_t i = 0; i < s.dv; ++i) {
        const float o =
            Product(keys,
                    [&](int64_t j) {
                      return std::pair(p[static_cast<size_t>(j)],
                                       c_.v[(key + j) * (s.dv + 3) + i]);
                    }) +
            0.0f;
        float& total = out[static_cast<size_t>(i)];
        total = first ? o : std::fma(total, before, o * now);
      }
    }
    for (float& v : out) v *= 1 / sum;
    return out;
  }

 private:
  static constexpr float kE = 1.44269504f;

  std::vector<float> Scores(int64_t key, int64_t keys) const {
    const Shape& s = c_.s;
    std::vector<float> scores;
    for (int64_t j = key; j < key + keys; ++j) {
      const float sum = Product(s.d, [&](int64_t i) {
        return std::pair(c_.q[row_ * (s.d + 1) + i], c_.k[j * (s.d + 2) + i]);
      });
      float score = sum * (0.3f * kE);
      if (s.mask) score = std::fma(c_.mask[row_ * s.keys + j], kE, score);
      scores.push_back(score);
    }
    return scores;
  }

  template <typename Factors>
  static float Product(int64_t k, Factors factors) {
    float sum = 0;
    for (int64_t step = 0; step < k; step += 32) {
      float strand[2] = {0, 0};
      for (int64_t i = step; i < std::min(k, step + 32); ++i) {
        const auto [x, w] = factors(i);
        strand[i % 2] = std::fma(Rounded(x), Rounded(w), strand[i % 2]);
      }
      sum += strand[0] + strand[1];
    }
    return sum;
  }
  // What is below 2^-126 becomes 0.
  static float Rounded(float x) {
    return std::abs(x) < 0x1p-126f ? 0.0f : BFloat16ToFloat(FloatToBFloat16(x));
  }
  static float Power(float x) {
    if (x < -126) return 0;
    const float r = x - std::floor(x);
    float p = 1.34266876e-02f;
    for (const float c :
         {5.22424690e-02f, 2.41280213e-01f, 6.93044841e-01f, 1.0f}) {
      p = std::fma(p, r, c);
    }
    return std::ldexp(p, static_cast<int>(std::floor(x)));
  }

  const Case& c_;
  const int64_t row_;
};

TEST_P(Attention, TilesFollowTheirChain) {
  if (!std::string(GetParam()).starts_with("amx")) return;
  std::mt19937 rng(6);
  for (const Shape& s : kShapes) {
    const Case c(s, rng);
    Case::Packed packed(c, table());
    Floats out(s.rows * s.dv);
    table().attention(c.Args(packed, out));
    for (int64_t r = 0; r < s.rows; ++r) {
      const std::vector<float> want = TileAttentionChain(c, r).Run();
      ASSERT_EQ(Difference(out.data() + r * s.dv, want.data(), s.dv), "")
          << &s - kShapes << " row " << r;
    }
  }
}

TEST_P(Attention, OneMaskRowServesAll) {
  std::mt19937 rng(3);
  const Shape s{9, 40, 16, 16, true, false, 0};
  Case c(s, rng);
  for (int64_t r = 1; r < s.rows; ++r) {
    std::copy_n(c.mask.data(), s.keys, c.mask.data() + r * s.keys);
  }
  Case::Packed packed(c, table());
  Floats each(s.rows * s.dv), shared(s.rows * s.dv);
  table().attention(c.Args(packed, each));
  AttentionArgs args = c.Args(packed, shared);
  args.ld_mask = 0;
  table().attention(args);
  EXPECT_EQ(Difference(shared.data(), each.data(), each.size()), "");
}

// Weights below 2^-126 would be computed with at a hundredth of the speed.
TEST_P(Attention, AMaskOfMinus100Hides) {
  const Shape s{3, 40, 16, 16, true, false, 0};
  std::mt19937 rng(6);
  Case c(s, rng);
  std::fill_n(c.q.data(), c.q.size(), 0.0f);
  std::fill_n(c.mask.data(), c.mask.size(), 0.0f);
  std::fill_n(c.v.data(), c.v.size(), 0.0f);
  for (int64_t key = 10; key < 20; ++key) {
    for (int64_t row = 0; row < s.rows; ++row)
      c.mask[row * s.keys + key] = -100;
    std::fill_n(c.v.data() + key * (s.dv + 3), s.dv, 1e30f);
  }
  Case::Packed packed(c, table());
  Floats out(s.rows * s.dv);
  table().attention(c.Args(packed, out));
  for (int64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 0.0f) << i;
}

TEST_P(Attention, RowThatSeesNothingIsNanOrZero) {
  std::mt19937 rng(4);
  for (int64_t keys : {4, 600}) {
    const Shape s{3, keys, 8, 20, true, false, 0};
    Case c(s, rng);
    std::fill_n(c.mask.data() + keys, keys, -kInf);  // row 1
    Case::Packed packed(c, table());
    for (bool zero : {false, true}) {
      Floats out(s.rows * s.dv);
      AttentionArgs args = c.Args(packed, out);
      args.zero_if_hidden = zero;
      table().attention(args);
      for (int64_t i = 0; i < s.dv; ++i) {
        EXPECT_FALSE(std::isnan(out[i]));
        if (zero) {
          EXPECT_EQ(out[s.dv + i], 0.0f);
        } else {
          EXPECT_TRUE(std::isnan(out[s.dv + i]));
        }
        EXPECT_FALSE(std::isnan(out[2 * s.dv + i]));
      }
    }
  }
}

TEST_P(Attention, CausalRowsBeforeTheFirstKeySeeNothing) {
  std::mt19937 rng(5);
  const Shape s{4, 6, 8, 8, false, true, -2};
  const Case c(s, rng);
  Case::Packed packed(c, table());
  Floats out(s.rows * s.dv);
  AttentionArgs args = c.Args(packed, out);
  args.zero_if_hidden = true;
  table().attention(args);
  for (int64_t i = 0; i < 2 * s.dv; ++i) EXPECT_EQ(out[i], 0.0f);
  // Row 2 sees key 0 alone.
  for (int64_t i = 0; i < s.dv; ++i) {
    EXPECT_NEAR(out[2 * s.dv + i], c.v[i], rounding_ * std::abs(c.v[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Attention,
                         ::testing::Values("scalar", "avx2", "avx512", "neon",
                                           "avx512bf16", "amx", "amx_emulated"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

}  // namespace
}  // namespace millrace::models
