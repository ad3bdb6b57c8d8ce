// Attention over pages against softmax(qK)V in double precision, and bit for
// bit against scalar. Keys that no row sees hold NaN: reading one
// shows in the result.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "tests/backend/kernels/kv_pages.h"

namespace millrace::models {
namespace {

class Attention : public KernelTest {};

// Error bounds. A score is a chain of d fma, so wrong by d units of Σ|q k| at
// most (in int8 by three: scales multiplied, integer to float, product); with
// exp's 4 units and the subtraction that is p's relative error. The sums l and
// o add a rounding for each key, int8 one for p * dv. A soft cap's slope is 1
// at most; of its own it adds a few units of the cap: two roundings of the
// argument (cap * x * tanh'(x) is below cap), exp, sum, quotient, difference,
// product.
void CheckAgainstDouble(const Pages& pages, const Floats& q, int32_t row,
                        int32_t visible, const Partial& got, const View& view) {
  const int32_t dims = pages.head_dim;
  const float* q_row = q.data() + row * (dims + 3);
  std::vector<double> query(q_row, q_row + dims);
  if (pages.format == KvFormat::kInt8) {
    const Head8 head(q_row, dims);
    for (int32_t d = 0; d < dims; ++d) {
      query[d] = double{head.scale} * head.q[d];
    }
  }
  std::vector<double> score(visible);
  double most = -1e300;
  double relative = 0;
  const int32_t hidden = view.Hidden(row);
  for (int32_t key = hidden; key < visible; ++key) {
    double magnitude = 0;
    const std::vector<double> stored = pages.Stored(pages.k, key);
    for (int32_t d = 0; d < dims; ++d) {
      const double term = query[d] * stored[d];
      score[key] += term;
      magnitude += std::abs(term);
    }
    if (view.softcap > 0) {
      score[key] = view.softcap * std::tanh(score[key] / view.softcap);
    }
    most = std::max(most, score[key]);
    relative = std::max(relative, dims * kUnit * magnitude);
  }
  relative += 8 * kUnit * view.softcap;
  EXPECT_NEAR(got.m[row], most, relative);
  relative = 2 * relative + (4 + 2 * std::abs(most)) * kUnit;
  double sum = 0;
  std::vector<double> out(dims), magnitude(dims);
  for (int32_t key = hidden; key < visible; ++key) {
    const double p = std::exp(score[key] - most);
    sum += p;
    const std::vector<double> v = pages.Stored(pages.v, key);
    for (int32_t d = 0; d < dims; ++d) {
      out[d] += p * v[d];
      magnitude[d] += p * std::abs(v[d]);
    }
  }
  relative += (visible + 3) * kUnit;
  EXPECT_NEAR(got.l[row], sum, sum * relative);
  for (int32_t d = 0; d < dims; ++d) {
    ASSERT_NEAR(got.o[row * (dims + 5) + d], out[d], magnitude[d] * relative)
        << "row " << row << " dim " << d;
  }
}

void Check(const KernelTable& t, KvFormat format, int32_t dims,
           const std::vector<int32_t>& visible, std::mt19937& rng,
           const View& view = {}) {
  const auto rows = static_cast<int32_t>(visible.size());
  int32_t most = 0;
  for (int32_t keys : visible) most = std::max(most, keys);
  SCOPED_TRACE(std::string(t.name) + " dims " + std::to_string(dims) +
               " rows " + std::to_string(rows) + " keys " +
               std::to_string(most));
  const Pages pages(t, format, dims, most, rng);
  Floats q(rows * (dims + 3));
  FillNormal(rng, q, 2.0f / std::sqrt(static_cast<float>(dims)));
  Partial got(rows, dims), want(rows, dims);
  RunAttend(t, pages, q, visible, got, view);
  RunAttend(Scalar(), pages, q, visible, want, view);
  EXPECT_EQ(BitDifference(got.m.data(), want.m.data(), rows), "");
  EXPECT_EQ(BitDifference(got.l.data(), want.l.data(), rows), "");
  EXPECT_EQ(BitDifference(got.o.data(), want.o.data(), got.o.size()), "");
  for (int32_t row = 0; row < rows; ++row) {
    CheckAgainstDouble(pages, q, row, visible[row], got, view);
  }
}

TEST_P(Attention, DecodeRowsOverEveryKindOfLastPage) {
  std::mt19937 rng(1);
  for (KvFormat format : {KvFormat::kF16, KvFormat::kF32, KvFormat::kInt8}) {
    for (int32_t keys : {1, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 128,
                         192, 255, 256}) {
      Check(table(), format, 64, {keys, keys, keys}, rng);
    }
  }
}

TEST_P(Attention, EveryRowTileAndHeadSize) {
  std::mt19937 rng(2);
  for (int32_t rows = 1; rows <= 13; ++rows) {
    Check(table(), KvFormat::kF16, 64, std::vector<int32_t>(rows, 70), rng);
    Check(table(), KvFormat::kInt8, 64, std::vector<int32_t>(rows, 70), rng);
  }
  for (int32_t dims : {16, 32, 48, 80, 96, 128, 256}) {
    Check(table(), KvFormat::kF16, dims, {40, 40, 40, 40}, rng);
    Check(table(), KvFormat::kF32, dims, {33, 33}, rng);
    Check(table(), KvFormat::kInt8, dims, {33, 40, 65, 63}, rng);
  }
}

TEST_P(Attention, PrefillRowsSeeDifferentKeys) {
  std::mt19937 rng(3);
  for (int32_t start : {0, 16, 59, 120, 239}) {  // 16 tokens of 3 heads
    std::vector<int32_t> visible;
    for (int32_t token = 0; token < 16; ++token) {
      for (int head = 0; head < 3; ++head) visible.push_back(start + token + 1);
    }
    Check(table(), KvFormat::kF16, 64, visible, rng);
    Check(table(), KvFormat::kInt8, 64, visible, rng);
  }
  std::vector<int32_t> any_order;
  for (int i = 0; i < 20; ++i) {
    any_order.push_back(1 + static_cast<int32_t>(rng() % 256));
  }
  Check(table(), KvFormat::kF32, 32, any_order, rng);
}

TEST_P(Attention, RowsOfAWindowDoNotSeeWhatIsBefore) {
  std::mt19937 rng(9);
  for (KvFormat format : {KvFormat::kF16, KvFormat::kF32, KvFormat::kInt8}) {
    // Tokens of a prompt, 3 heads each, through windows that end in a page, on
    // a page, after a vector, and of one key.
    for (const int32_t window : {1, 5, 16, 64, 100, 190}) {
      View view;
      std::vector<int32_t> visible;
      for (int32_t token = 180; token < 196; ++token) {
        for (int head = 0; head < 3; ++head) {
          visible.push_back(token + 1);
          view.hidden.push_back(std::max(0, token + 1 - window));
        }
      }
      Check(table(), format, 64, visible, rng, view);
    }
  }
  for (int round = 0; round < 20; ++round) {  // any ranges
    View view;
    std::vector<int32_t> visible;
    for (int row = 0; row < 7; ++row) {
      visible.push_back(1 + static_cast<int32_t>(rng() % 256));
      view.hidden.push_back(static_cast<int32_t>(rng() % visible.back()));
    }
    Check(table(), KvFormat::kF16, 32, visible, rng, view);
  }
}

TEST_P(Attention, SoftCapBoundsScores) {
  std::mt19937 rng(10);
  for (KvFormat format : {KvFormat::kF16, KvFormat::kInt8}) {
    for (const float cap : {0.5f, 5.0f, 50.0f}) {
      View view{.softcap = cap};
      Check(table(), format, 64, {200, 200, 100, 7}, rng, view);
      view.hidden = {190, 3, 0, 6};
      Check(table(), format, 64, {200, 200, 100, 7}, rng, view);
    }
  }
}

// A row's numbers are the same whoever shares its call.
TEST_P(Attention, ARowDoesNotDependOnItsMates) {
  std::mt19937 rng(4);
  const std::vector<int32_t> visible = {200, 3, 130, 64, 65, 199, 1};
  const Pages pages(table(), KvFormat::kF16, 64, 200, rng);
  const auto rows = static_cast<int32_t>(visible.size());
  Floats q(rows * 67);
  FillNormal(rng, q, 0.3f);
  Partial together(rows, 64);
  RunAttend(table(), pages, q, visible, together);
  for (int32_t row = 0; row < rows; ++row) {
    Floats one(67);
    for (int i = 0; i < 67; ++i) one[i] = q[row * 67 + i];
    Partial alone(1, 64);
    RunAttend(table(), pages, one, {visible[row]}, alone);
    EXPECT_EQ(Bits(alone.m[0]), Bits(together.m[row]));
    EXPECT_EQ(Bits(alone.l[0]), Bits(together.l[row]));
    EXPECT_EQ(BitDifference(alone.o.data(), together.o.data() + row * 69, 64),
              "");
  }
}

TEST_P(Attention, MergedSplitsAreTheWhole) {
  std::mt19937 rng(5);
  for (int32_t splits : {1, 2, 3, 9}) {
    for (int32_t dims : {16, 64, 80}) {
      const int64_t stride = dims + 1;
      Floats m(splits * 2), l(splits * 2), o(splits * stride);
      FillNormal(rng, m, 5.0f);
      FillNormal(rng, o, 3.0f);
      for (int64_t i = 0; i < l.size(); ++i) {
        l[i] = 1.0f + static_cast<float>(rng() % 1000) / 10.0f;
      }
      Floats got(dims), want(dims);
      table().merge(m.data(), l.data(), o.data(), 2, stride, splits, dims,
                    nullptr, got.data());
      Scalar().merge(m.data(), l.data(), o.data(), 2, stride, splits, dims,
                     nullptr, want.data());
      EXPECT_EQ(BitDifference(got.data(), want.data(), dims), "");
      double most = -1e300;
      for (int32_t i = 0; i < splits; ++i)
        most = std::max<double>(most, m[2 * i]);
      for (int32_t d = 0; d < dims; ++d) {
        double sum = 0, value = 0, magnitude = 0;
        for (int32_t i = 0; i < splits; ++i) {
          const double c = std::exp(m[2 * i] - most);
          sum += c * l[2 * i];
          value += c * o[i * stride + d];
          magnitude += c * std::abs(o[i * stride + d]);
        }
        // exp twice (4 units, and one of an argument up to 30), a rounding for
        // each split twice, reciprocal and product.
        const double bound = (2 * (4 + 30 + splits) + 2) * kUnit;
        EXPECT_NEAR(got[d], value / sum, magnitude / sum * bound);
      }
    }
  }
}

// out = Σ c o / (Σ c l + exp(sink - M)), whether the sink is the greatest or
// lost among the others.
TEST_P(Attention, ASinkTakesItsShareOfTheSum) {
  std::mt19937 rng(11);
  for (const float sink : {-200.0f, -3.0f, 0.5f, 6.0f, 90.0f}) {
    constexpr int32_t kSplits = 3, kDims = 80;
    Floats m(kSplits), l(kSplits), o(kSplits * kDims), got(kDims), want(kDims);
    FillNormal(rng, m, 5.0f);
    FillNormal(rng, o);
    for (int32_t i = 0; i < kSplits; ++i) l[i] = 1.0f + 7.0f * i;
    table().merge(m.data(), l.data(), o.data(), 1, kDims, kSplits, kDims, &sink,
                  got.data());
    Scalar().merge(m.data(), l.data(), o.data(), 1, kDims, kSplits, kDims,
                   &sink, want.data());
    EXPECT_EQ(BitDifference(got.data(), want.data(), kDims), "");
    double most = sink;
    for (int32_t i = 0; i < kSplits; ++i) most = std::max<double>(most, m[i]);
    for (int32_t d = 0; d < kDims; ++d) {
      double sum = std::exp(sink - most), value = 0, magnitude = 0;
      for (int32_t i = 0; i < kSplits; ++i) {
        const double c = std::exp(m[i] - most);
        sum += c * l[i];
        value += c * o[i * kDims + d];
        magnitude += c * std::abs(o[i * kDims + d]);
      }
      // As in MergedSplitsAreTheWhole, arguments of exp up to 110; what is so
      // small that exp gives 0 is below 1e-37.
      const double bound = (2 * (5 + 110 + kSplits) + 2) * kUnit;
      EXPECT_NEAR(got[d], value / sum, magnitude / sum * bound + 1e-35);
    }
  }
}

TEST_P(Attention, OneSplitMergesToItself) {
  std::mt19937 rng(6);
  Floats m(1, 3.25f), l(1, 4.0f), o(64), out(64);
  FillNormal(rng, o);
  table().merge(m.data(), l.data(), o.data(), 1, 64, 1, 64, nullptr,
                out.data());
  for (int d = 0; d < 64; ++d) EXPECT_EQ(out[d], o[d] * 0.25f);
}

// Every float that is a half comes through unharmed, and others round to the
// nearest even one, however small or large.
TEST_P(Attention, WrittenHalvesAreRoundedAsTheStandardSays) {
  constexpr int32_t kDims = 256;
  Buffer<uint16_t> k_page(kPageKeys * kDims), v_page(kPageKeys * kDims);
  Floats x(kDims);
  std::mt19937 rng(7);
  const auto check = [&] {
    const int32_t index = static_cast<int32_t>(rng() % kPageKeys);
    table().write_kv(x.data(), x.data(), kDims, index, KvFormat::kF16,
                     k_page.data(), v_page.data());
    for (int32_t d = 0; d < kDims; ++d) {
      if (std::isnan(x[d])) continue;
      const auto want =
          __builtin_bit_cast(uint16_t, static_cast<Float16>(x[d]));
      ASSERT_EQ(v_page[index * kDims + d], want) << x[d];
      ASSERT_EQ(k_page[(index / 16 * kDims + d) * 16 + index % 16], want);
    }
  };
  for (uint32_t first = 0; first < 65536; first += kDims) {
    for (uint32_t d = 0; d < kDims; ++d) {
      x[d] = static_cast<float>(
          __builtin_bit_cast(Float16, static_cast<uint16_t>(first + d)));
    }
    check();
    // The neighbourhood of the halfway points: half an ulp of the half up.
    for (int32_t d = 0; d < kDims; ++d) {
      const uint32_t nudge = static_cast<uint32_t>(rng() % 3);
      x[d] = __builtin_bit_cast(float, Bits(x[d]) + 0x0fff + nudge);
    }
    check();
  }
  for (int round = 0; round < 50; ++round) {
    for (int32_t d = 0; d < kDims; ++d) {
      x[d] = __builtin_bit_cast(float, static_cast<uint32_t>(rng()));
    }
    check();
  }
}

// What an int8 page holds, place by place.
TEST_P(Attention, WrittenHeadsAreRoundedToTheirScale) {
  std::mt19937 rng(8);
  for (const int32_t dims : {16, 48, 64, 128}) {
    Buffer<uint8_t> k_page(kPageKeys * (dims + 4)), v_page(k_page.size());
    for (int32_t index = 0; index < kPageKeys; ++index) {
      Floats k(dims), v(dims);
      FillNormal(rng, k, std::ldexp(1.0f, static_cast<int>(rng() % 60) - 30));
      FillNormal(rng, v);
      if (index == 5) {
        for (int32_t d = 0; d < dims; ++d) k[d] = 0;  // no scale at all
      }
      if (index == 6) {
        for (int32_t d = 0; d < dims; ++d) k[d] = 1e-39f;  // none either
      }
      table().write_kv(k.data(), v.data(), dims, index, KvFormat::kInt8,
                       k_page.data(), v_page.data());
      for (const bool is_key : {true, false}) {
        const Floats& x = is_key ? k : v;
        Head8 want(x.data(), dims);
        if (is_key && index == 6) want = Head8(Floats(dims).data(), dims);
        const auto* page =
            reinterpret_cast<const int8_t*>((is_key ? k_page : v_page).data());
        float scale;
        std::memcpy(&scale, page + kPageKeys * dims + index * 4, 4);
        ASSERT_EQ(scale, want.scale);
        if (want.near_half) continue;
        for (int32_t d = 0; d < dims; ++d) {
          const int64_t at = is_key ? (index / 16 * dims + d / 4 * 4) * 16 +
                                          index % 16 * 4 + d % 4
                                    : index * dims + d;
          ASSERT_EQ(page[at], want.q[d]) << dims << " " << index << " " << d;
        }
      }
    }
  }
}

INSTANTIATE_KERNEL_TESTS(Attention);

}  // namespace
}  // namespace millrace::models
