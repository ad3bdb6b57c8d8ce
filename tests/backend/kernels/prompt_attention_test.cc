// Attention of prompts in tiles against softmax(qK)V in double precision. Keys
// that no row sees hold NaN: reading one shows in the result. The emulated
// tiles are tested on any CPU with AVX-512 BF16; where the real ones are, they
// give the same bits.

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/backend/kernels/kv_pages.h"
#include "tests/backend/kernels/prompt_attention_emulated.h"

namespace millrace::models {

namespace {

class PromptAttention : public KernelTest {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) != "amx_emulated") return KernelTest::SetUp();
    const auto base = ChooseKernels("avx512bf16");
    if (!base.ok()) GTEST_SKIP() << base.status().ToString();
    emulated_ = EmulatedPromptKernels();
    set_table(&emulated_);
  }

 private:
  KernelTable emulated_;
};

// Relative error of a rounding to bf16, eight bits, at most; and the root of
// its mean square, errors spread evenly in half a unit of the last bit and
// values evenly between two powers of two.
constexpr double kBf16 = 0x1p-8;
const double kBf16Rms = kBf16 / std::sqrt(3.0) / std::sqrt(2.0);

// Σ of squares of errors, and of what they should be.
struct Squares {
  double error = 0;
  double expected = 0;
};

// What attention of one row is, in double, and how far off one may be.
//
// q and k are rounded to bf16, so a score is wrong by 2 * 2^-8 * Σ|q k| at most
// and, errors being independent, by some sqrt(2 Σ(q k)²) times the root above.
// p gets that error, since exp's slope is itself, and one rounding; so does v.
// l sums the rounded p. Of the roundings to f32 those of a sum over d dims or
// over the keys matter most: a unit for each, at most.
void CheckRow(const Pages& pages, const Floats& q, int32_t row, int32_t visible,
              const Partial& got, const View& view, Squares& squares) {
  const int32_t dims = pages.head_dim;
  const float* query = q.data() + row * (dims + 3);
  const int32_t hidden = view.Hidden(row);
  std::vector<double> score(visible), score_rms(visible);
  double most = -1e300;
  double score_error = 0;
  for (int32_t key = hidden; key < visible; ++key) {
    const std::vector<double> k = pages.Stored(pages.k, key);
    double magnitude = 0, square = 0;
    for (int32_t d = 0; d < dims; ++d) {
      const double term = double{query[d]} * k[d];
      score[key] += term;
      magnitude += std::abs(term);
      square += term * term;
    }
    if (view.softcap > 0) {
      score[key] = view.softcap * std::tanh(score[key] / view.softcap);
    }
    most = std::max(most, score[key]);
    score_rms[key] = std::sqrt(2 * square) * kBf16Rms;
    score_error =
        std::max(score_error, magnitude * (2.01 * kBf16 + dims * kUnit));
  }
  score_error += 8 * kUnit * view.softcap;
  ASSERT_NEAR(got.m[row], most, score_error) << "row " << row;
  double sum = 0;
  std::vector<double> out(dims), magnitude(dims), variance(dims);
  for (int32_t key = hidden; key < visible; ++key) {
    const double p = std::exp(score[key] - most);
    sum += p;
    const std::vector<double> v = pages.Stored(pages.v, key);
    const double relative =
        std::sqrt(score_rms[key] * score_rms[key] + 2 * kBf16Rms * kBf16Rms);
    for (int32_t d = 0; d < dims; ++d) {
      out[d] += p * v[d];
      magnitude[d] += p * std::abs(v[d]);
      variance[d] += p * relative * v[d] * (p * relative * v[d]);
    }
  }
  // Numerator and denominator.
  const double relative =
      2 * (std::expm1(score_error) + kBf16 + (visible + 8) * kUnit) + kBf16;
  for (int32_t d = 0; d < dims; ++d) {
    const double value = got.o[row * (dims + 5) + d] / double{got.l[row]};
    const double want = out[d] / sum;
    ASSERT_NEAR(value, want, magnitude[d] / sum * relative)
        << "row " << row << " dim " << d;
    squares.error += (value - want) * (value - want);
    squares.expected += variance[d] / (sum * sum);
  }
}

struct Call {
  Call(const KernelTable& t, KvFormat format, int32_t dims,
       const std::vector<int32_t>& visible_keys, std::mt19937& rng,
       const View& how = {})
      : visible(visible_keys),
        view(how),
        pages(t, format, dims,
              *std::max_element(visible.begin(), visible.end()), rng),
        q(rows() * (dims + 3)) {
    FillNormal(rng, q, 2.0f / std::sqrt(static_cast<float>(dims)));
  }
  int32_t rows() const { return static_cast<int32_t>(visible.size()); }

  std::vector<int32_t> visible;
  View view;
  Pages pages;
  Floats q;
};

struct Result : Partial {
  Result(const KernelTable& t, const Call& call)
      : Partial(call.rows(), call.pages.head_dim) {
    RunAttend(t, call.pages, call.q, call.visible, *this, call.view, true);
  }
};

// Runs some rows of a call by themselves, in the order given, and expects of
// each the bits that it has in `want`.
void ExpectSameBits(const KernelTable& t, const Call& call,
                    const std::vector<int32_t>& rows, const Partial& want) {
  const int32_t dims = call.pages.head_dim;
  Floats q(static_cast<int64_t>(rows.size()) * (dims + 3));
  std::vector<int32_t> visible;
  View view{.softcap = call.view.softcap};
  for (const int32_t row : rows) {
    std::copy_n(call.q.data() + row * (dims + 3), dims,
                q.data() + static_cast<int64_t>(visible.size()) * (dims + 3));
    visible.push_back(call.visible[row]);
    if (!call.view.hidden.empty()) view.hidden.push_back(call.view.Hidden(row));
  }
  Partial got(static_cast<int32_t>(rows.size()), dims);
  RunAttend(t, call.pages, q, visible, got, view, true);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t row = rows[i];
    SCOPED_TRACE("row " + std::to_string(row) + " as " + std::to_string(i));
    EXPECT_EQ(Bits(got.m[i]), Bits(want.m[row]));
    EXPECT_EQ(Bits(got.l[i]), Bits(want.l[row]));
    EXPECT_EQ(BitDifference(got.o.data() + i * (dims + 5),
                            want.o.data() + row * (dims + 5), dims),
              "");
  }
}

void Check(const KernelTable& t, KvFormat format, int32_t dims,
           const std::vector<int32_t>& visible, std::mt19937& rng,
           const View& view = {}) {
  const Call call(t, format, dims, visible, rng, view);
  SCOPED_TRACE("format " + std::to_string(static_cast<int>(format)) + " dims " +
               std::to_string(dims) + " rows " + std::to_string(call.rows()));
  const Result got(t, call);
  Squares squares;
  for (int32_t row = 0; row < call.rows(); ++row) {
    CheckRow(call.pages, call.q, row, visible[row], got, view, squares);
  }
  // Few rows are no statistic: up to 1.13 was seen, 0.7 in the middle.
  EXPECT_LT(std::sqrt(squares.error), 1.5 * std::sqrt(squares.expected));
}

TEST_P(PromptAttention, AnyKeysOfAnyFormat) {
  std::mt19937 rng(1);
  for (KvFormat format : {KvFormat::kF16, KvFormat::kF32, KvFormat::kInt8}) {
    for (int32_t keys : {1, 16, 31, 32, 33, 64, 65, 255, 256, 257, 700, 1024}) {
      Check(table(), format, 64, std::vector<int32_t>(5, keys), rng);
    }
  }
}

TEST_P(PromptAttention, AnyRowsAndHeadSizes) {
  std::mt19937 rng(2);
  for (int32_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 64, 100}) {
    Check(table(), KvFormat::kF16, 64, std::vector<int32_t>(rows, 70), rng);
  }
  for (int32_t dims : {16, 32, 48, 80, 96, 128, 256}) {
    for (KvFormat format : {KvFormat::kF16, KvFormat::kF32, KvFormat::kInt8}) {
      Check(table(), format, dims, std::vector<int32_t>(20, 300), rng);
    }
  }
}

// Tokens of a chunk, 3 query heads each, with and without a window.
TEST_P(PromptAttention, RowsSeeDifferentKeys) {
  std::mt19937 rng(3);
  for (int32_t start : {0, 59, 239, 500, 990}) {
    for (int32_t window : {0, 1, 40, 256, 600}) {
      View view;
      std::vector<int32_t> visible;
      for (int32_t token = start; token < start + 33; ++token) {
        for (int head = 0; head < 3; ++head) {
          visible.push_back(token + 1);
          if (window > 0) {
            view.hidden.push_back(std::max(0, token + 1 - window));
          }
        }
      }
      Check(table(), KvFormat::kF16, 32, visible, rng, view);
    }
  }
}

TEST_P(PromptAttention, SoftCapBoundsScores) {
  std::mt19937 rng(4);
  for (const float cap : {0.5f, 5.0f, 50.0f}) {
    View view{.softcap = cap};
    Check(table(), KvFormat::kF16, 64, {300, 200, 100, 7}, rng, view);
    view.hidden = {290, 3, 0, 6};
    Check(table(), KvFormat::kInt8, 64, {300, 200, 100, 7}, rng, view);
  }
}

// A row's bits are the same alone, among any others and in any order.
TEST_P(PromptAttention, ARowDoesNotDependOnItsMates) {
  std::mt19937 rng(5);
  View view;
  std::vector<int32_t> visible;
  for (int32_t row = 0; row < 70; ++row) {
    visible.push_back(1 + static_cast<int32_t>(rng() % 900));
    view.hidden.push_back(static_cast<int32_t>(rng() % visible.back()));
  }
  for (const bool windows : {false, true}) {
    const Call call(table(), KvFormat::kF16, 80, visible, rng,
                    windows ? view : View{.softcap = 9.0f});
    const Result want(table(), call);
    std::vector<int32_t> order(visible.size());
    for (int32_t row = 0; row < call.rows(); ++row) {
      order[row] = row;
      if (row % 5 == 0) ExpectSameBits(table(), call, {row}, want);
    }
    for (const size_t chunk : {3, 16, 23, 70}) {
      std::shuffle(order.begin(), order.end(), rng);
      for (size_t at = 0; at < order.size(); at += chunk) {
        const size_t end = std::min(order.size(), at + chunk);
        ExpectSameBits(table(), call,
                       {order.begin() + static_cast<ptrdiff_t>(at),
                        order.begin() + static_cast<ptrdiff_t>(end)},
                       want);
      }
    }
  }
}

// What a row does not see cannot reach it, not even as 0 * infinity.
TEST_P(PromptAttention, WhatIsHiddenMayBeAnything) {
  std::mt19937 rng(6);
  for (KvFormat format : {KvFormat::kF16, KvFormat::kF32, KvFormat::kInt8}) {
    const View view{.hidden = {0, 41, 100, 41}};
    Call call(table(), format, 64, {40, 300, 280, 65}, rng, view);
    const Result want(table(), call);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float x : {kNan, infinity, -infinity, 3e38f}) {
      const std::vector<float> head(64, x);
      table().write_kv(head.data(), head.data(), 64, 40, format,
                       call.pages.k_pages[0]->data(),
                       call.pages.v_pages[0]->data());
      if (format == KvFormat::kInt8) {  // write_kv may leave scales finite
        for (auto* pages : {&call.pages.k_pages, &call.pages.v_pages}) {
          std::memcpy((*pages)[0]->data() + 64 * 64 + 40 * sizeof(float), &x,
                      sizeof(x));
        }
      }
      const Result got(table(), call);
      EXPECT_EQ(BitDifference(got.m.data(), want.m.data(), 4), "");
      EXPECT_EQ(BitDifference(got.l.data(), want.l.data(), 4), "");
      for (int32_t row = 0; row < 4; ++row) {
        EXPECT_EQ(BitDifference(got.o.data() + row * 69,
                                want.o.data() + row * 69, 64),
                  "");
      }
    }
  }
}

// With one key the weight is 1, so the result is its value in bf16.
TEST_P(PromptAttention, OneKeyGivesItsValue) {
  std::mt19937 rng(7);
  const Call call(table(), KvFormat::kF32, 64, {1}, rng);
  const Result got(table(), call);
  EXPECT_EQ(got.l[0], 1.0f);
  for (int32_t d = 0; d < 64; ++d) {
    EXPECT_NEAR(got.o[d], call.pages.v[d], std::abs(call.pages.v[d]) * kBf16);
  }
}

TEST_P(PromptAttention, EmulationGivesTheBitsOfTheCpu) {
  if (std::string(GetParam()) != "amx") GTEST_SKIP() << "compares amx";
  const KernelTable emulated = EmulatedPromptKernels();
  std::mt19937 rng(8);
  for (KvFormat format : {KvFormat::kF16, KvFormat::kF32, KvFormat::kInt8}) {
    for (int32_t dims : {48, 64}) {
      View view;
      std::vector<int32_t> visible;
      for (int32_t row = 0; row < 50; ++row) {
        visible.push_back(1 + static_cast<int32_t>(rng() % 700));
        view.hidden.push_back(static_cast<int32_t>(rng() % visible.back()));
      }
      const Call call(table(), format, dims, visible, rng, view);
      const Result got(table(), call);
      const Result want(emulated, call);
      EXPECT_EQ(BitDifference(got.m.data(), want.m.data(), 50), "");
      EXPECT_EQ(BitDifference(got.l.data(), want.l.data(), 50), "");
      for (int32_t row = 0; row < 50; ++row) {
        EXPECT_EQ(BitDifference(got.o.data() + row * (dims + 5),
                                want.o.data() + row * (dims + 5), dims),
                  "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, PromptAttention,
                         ::testing::Values("amx", "amx_emulated"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

}  // namespace
}  // namespace millrace::models
