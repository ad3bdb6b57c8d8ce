// Every weight format on every table: against a plain sum in double precision,
// and bit for bit against scalar, for ragged numbers of outputs and tokens.

#include <cmath>

#include "tests/backend/kernels/amx_emulated.h"
#include "tests/backend/kernels/tables.h"
#include "tests/backend/kernels/weights.h"

namespace millrace::models {
namespace {

constexpr WeightFormat kFormats[] = {
    WeightFormat::kF32,  WeightFormat::kF16,    WeightFormat::kBF16,
    WeightFormat::kQ8_0, WeightFormat::kQ4_0,   WeightFormat::kQ4_1,
    WeightFormat::kQ5_0, WeightFormat::kQ5_1,   WeightFormat::kQ2_K,
    WeightFormat::kQ3_K, WeightFormat::kQ4_K,   WeightFormat::kQ5_K,
    WeightFormat::kQ6_K, WeightFormat::kIQ4_NL, WeightFormat::kIQ4_XS,
    WeightFormat::kMXFP4};

uint16_t HalfBits(float x) {
  return __builtin_bit_cast(uint16_t, static_cast<Float16>(x));
}

void Append16(std::vector<uint8_t>& row, uint16_t bits) {
  row.push_back(bits & 255);
  row.push_back(bits >> 8);
}

// One matrix in the file's format, and its values in two parts that are summed
// apart: what the scale multiplies, and the minimum.
struct Weights {
  WeightFormat format;
  int64_t n, k;
  std::vector<std::vector<uint8_t>> rows;
  std::vector<double> scaled, min;  // [n][k]
};

void AppendFloatRow(std::mt19937& rng, Weights& w, std::vector<uint8_t>& row) {
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < w.k; ++i) {
    const float x = normal(rng);
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    if (w.format == WeightFormat::kF16) {
      Append16(row, HalfBits(x));
      w.scaled.push_back(static_cast<double>(static_cast<Float16>(x)));
    } else if (w.format == WeightFormat::kBF16) {
      Append16(row, bits >> 16);  // any bit pattern will do: cut, not rounded
      w.scaled.push_back(__builtin_bit_cast(float, bits & 0xffff0000u));
    } else {
      Append16(row, bits & 0xffff);
      Append16(row, bits >> 16);
      w.scaled.push_back(x);
    }
  }
  w.min.resize(w.scaled.size());
}

// The plain dequantiser, itself held against the format's own definition by
// quant_test, tells what a row is worth with its minima and without. But for
// Q6_K, whose product has 25 bits, both are exact.
void AppendIntegerRow(std::mt19937& rng, bool extreme, Weights& w,
                      std::vector<uint8_t>& row) {
  const FileFormat& f = FileFormatOf(w.format);
  row = RandomRow(rng, f, w.k, extreme);
  const auto values = [&](const std::vector<uint8_t>& bytes) {
    std::vector<float> out(w.k);
    EXPECT_TRUE(DequantizeRow(f.type, bytes.data(), w.k, out.data()));
    return out;
  };
  for (float x : values(Without(f, row, f.min_at))) w.scaled.push_back(x);
  if (f.min_at < 0) {
    w.min.resize(w.scaled.size());
    return;
  }
  for (float x : values(Without(f, row, f.scale_at))) w.min.push_back(x);
}

Weights MakeWeights(std::mt19937& rng, WeightFormat format, int64_t n,
                    int64_t k, bool extreme = false) {
  Weights w{format, n, k, {}, {}, {}};
  for (int64_t r = 0; r < n; ++r) {
    std::vector<uint8_t> row;
    if (IsIntegerFormat(format)) {
      AppendIntegerRow(rng, extreme, w, row);
    } else {
      AppendFloatRow(rng, w, row);
    }
    w.rows.push_back(std::move(row));
  }
  return w;
}

// The same matrix packed for one table.
struct Packed {
  Packed(const KernelTable& t, const Weights& w)
      : num_groups((w.n + t.row_group - 1) / t.row_group),
        bytes(num_groups * t.group_bytes(w.format, w.k), 0xee) {
    matrix = {bytes.data(), w.format, w.n, w.k, t.group_bytes(w.format, w.k)};
    for (int64_t g = 0; g < num_groups; ++g) {
      std::vector<const void*> rows;
      for (int64_t r = g * t.row_group; r < w.n && r < (g + 1) * t.row_group;
           ++r) {
        rows.push_back(w.rows[r].data());
      }
      packed =
          t.pack_group(w.format, rows.data(), static_cast<int32_t>(rows.size()),
                       w.k, bytes.data() + g * matrix.group_bytes);
      if (!packed) return;
    }
  }
  int64_t num_groups;
  Buffer<uint8_t> bytes;
  PackedMatrix matrix;
  bool packed = false;
};

// Rows of activations in both forms, quantised by the scalar table.
struct Acts {
  Acts(int64_t rows, int64_t columns)
      : k(columns),
        x(rows * k),
        q(rows * k),
        d(rows * k / 32),
        s(rows * k / 32),
        sum(rows * k / 32),
        half(rows * k / 16) {}

  void Quantize() {
    for (int64_t m = 0; m < x.size() / k; ++m) {
      const int64_t b = m * (k / 32);
      Scalar().quantize_row(x.data() + m * k, k,
                            {q.data() + m * k, d.data() + b, s.data() + b,
                             sum.data() + b, half.data() + 2 * b});
    }
  }
  ActRows For(WeightFormat format) const {
    ActRows act;
    if (IsIntegerFormat(format)) {
      act.q = q.data();
      act.d = d.data();
      act.s = s.data();
      act.sum = sum.data();
      act.half = half.data();
      act.ld_q = k;
      act.ld_block = k / 32;
    } else {
      act.f32 = x.data();
      act.ld_f32 = k;
    }
    return act;
  }

  int64_t k;
  Floats x;
  Buffer<int8_t> q;
  Floats d, s;
  Buffer<int32_t> sum;
  Buffer<int16_t> half;
};

struct Expected {
  double value;
  double tolerance;
};

// Integer formats: each block of 32 columns adds one rounding of dw * dx, one
// of s, and one for each fma on a partial sum that never exceeds Σ|terms|: at
// most 2 blocks + 2 roundings of that size in all. Float formats: one rounding
// for each column of a strand, and two for joining the strands. The reference
// itself rounds products of Q6_K once.
Expected Reference(const Weights& w, const Acts& act, int64_t m, int64_t n) {
  double value = 0;
  double magnitude = 0;
  if (!IsIntegerFormat(w.format)) {
    for (int64_t k = 0; k < w.k; ++k) {
      const double term = w.scaled[n * w.k + k] * double{act.x[m * w.k + k]};
      value += term;
      magnitude += std::abs(term);
    }
    return {value, (w.k / 4.0 + 3) * kUnit * magnitude};
  }
  double rounded = 0;
  for (int64_t b = 0; b < w.k / 32; ++b) {
    const double dx = act.d[m * (w.k / 32) + b];
    double scaled = 0;
    double min = 0;
    for (int64_t k = b * 32; k < b * 32 + 32; ++k) {
      const double x = dx * act.q[m * w.k + k];
      scaled += w.scaled[n * w.k + k] * x;
      min += w.min[n * w.k + k] * x;
      rounded += std::abs(w.scaled[n * w.k + k] * x);
    }
    value += scaled + min;
    magnitude += std::abs(scaled) + std::abs(min);
  }
  if (w.format != WeightFormat::kQ6_K) rounded = 0;
  return {value, kUnit * ((w.k / 16.0 + 3) * magnitude + rounded)};
}

// BF16 weights that meet bf16 rows have a test of their own.
bool MeetsBf16Rows(const KernelTable& t, WeightFormat format) {
  return format == WeightFormat::kBF16 && t.round_row != nullptr;
}

void CheckShape(const KernelTable& t, const Weights& w, Acts& act,
                int32_t num_rows) {
  SCOPED_TRACE(std::string(t.name) + " format " +
               std::to_string(static_cast<int>(w.format)) + " n " +
               std::to_string(w.n) + " k " + std::to_string(w.k) + " rows " +
               std::to_string(num_rows));
  if (MeetsBf16Rows(t, w.format)) return;
  const Packed mine(t, w);
  const Packed scalar(Scalar(), w);
  ASSERT_TRUE(mine.packed);
  const int64_t ld = w.n + 3;  // three columns that stay unwritten
  Floats y(num_rows * ld, -7.0f);
  Floats want(num_rows * ld, -7.0f);
  t.linear(mine.matrix, 0, mine.num_groups, act.For(w.format), num_rows,
           y.data(), ld);
  Scalar().linear(scalar.matrix, 0, scalar.num_groups, act.For(w.format),
                  num_rows, want.data(), ld);
  EXPECT_EQ(BitDifference(y.data(), want.data(), y.size()), "");
  for (int32_t m = 0; m < num_rows; ++m) {
    for (int64_t n = 0; n < w.n; ++n) {
      const Expected e = Reference(w, act, m, n);
      ASSERT_NEAR(y[m * ld + n], e.value, e.tolerance) << m << ", " << n;
    }
    for (int64_t n = w.n; n < ld; ++n) ASSERT_EQ(y[m * ld + n], -7.0f);
  }
}

class Linear : public EmulatedKernelTest {};

TEST_P(Linear, EveryTileWidthGivesTheReferenceAndScalarsBits) {
  std::mt19937 rng(1);
  for (WeightFormat format : kFormats) {
    const Weights w = MakeWeights(rng, format, 21, WholeColumns(format, 96));
    for (int32_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 33, 64}) {
      Acts act(rows, w.k);
      FillNormal(rng, act.x);
      act.Quantize();
      CheckShape(table(), w, act, rows);
    }
  }
}

TEST_P(Linear, RaggedOutputsAndLongRows) {
  std::mt19937 rng(2);
  for (WeightFormat format : kFormats) {
    // 320 and 1536 columns: more and less than a whole number of panels.
    for (auto [n, columns] : {std::pair<int64_t, int64_t>{1, 32},
                              {7, 64},
                              {8, 320},
                              {16, 288},
                              {33, 576},
                              {17, 1536}}) {
      const int64_t k = WholeColumns(format, columns);
      const Weights w = MakeWeights(rng, format, n, k);
      for (int32_t rows : {1, 3, 13, 40}) {
        Acts act(rows, k);
        FillNormal(rng, act.x);
        act.Quantize();
        CheckShape(table(), w, act, rows);
      }
    }
  }
}

TEST_P(Linear, MoreWeightsThanOneCachePanel) {
  std::mt19937 rng(3);
  const Weights w = MakeWeights(rng, WeightFormat::kQ4_1, 1200, 576);
  Acts act(9, w.k);
  FillNormal(rng, act.x);
  act.Quantize();
  CheckShape(table(), w, act, 9);
}

// Some tables take a few rows at a time.
TEST_P(Linear, MoreRowsThanOneChunk) {
  std::mt19937 rng(9);
  for (WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ6_K}) {
    const Weights w = MakeWeights(rng, format, 18, 2048);
    Acts act(600, w.k);
    FillNormal(rng, act.x);
    act.Quantize();
    CheckShape(table(), w, act, 600);
  }
}

TEST_P(Linear, FloatColumnsNeedNotBeAMultipleOfFour) {
  std::mt19937 rng(4);
  for (WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16}) {
    for (int64_t k : {1, 2, 3, 5, 39}) {
      const Weights w = MakeWeights(rng, format, 19, k);
      Acts act(5, k);
      FillNormal(rng, act.x);
      CheckShape(table(), w, act, 5);
    }
  }
}

TEST_P(Linear, TheGreatestSumsNeitherWrapNorSaturate) {
  std::mt19937 rng(5);
  for (WeightFormat format : kFormats) {
    if (!IsIntegerFormat(format)) continue;
    const int64_t columns = WholeColumns(format, 64);
    const Weights w = MakeWeights(rng, format, 16, columns, true);
    for (float sign : {1.0f, -1.0f}) {
      Acts act(32, w.k);
      for (int64_t i = 0; i < act.x.size(); ++i) act.x[i] = sign * 127.0f;
      act.Quantize();
      ASSERT_EQ(act.q[0], static_cast<int8_t>(sign * 127));
      CheckShape(table(), w, act, 32);
      CheckShape(table(), w, act, 8);
      CheckShape(table(), w, act, 1);
    }
  }
}

TEST_P(Linear, AShareOfGroupsLeavesTheOthersAlone) {
  std::mt19937 rng(6);
  for (WeightFormat format : kFormats) {
    if (MeetsBf16Rows(table(), format)) continue;
    const int64_t group = table().row_group;
    const Weights w =
        MakeWeights(rng, format, 3 * group, WholeColumns(format, 64));
    const Packed p(table(), w);
    Acts act(4, w.k);
    FillNormal(rng, act.x);
    act.Quantize();
    Floats all(4 * w.n), part(4 * w.n, -7.0f);
    table().linear(p.matrix, 0, 3, act.For(format), 4, all.data(), w.n);
    table().linear(p.matrix, 1, 2, act.For(format), 4, part.data(), w.n);
    for (int64_t m = 0; m < 4; ++m) {
      for (int64_t n = 0; n < w.n; ++n) {
        const bool mine = n >= group && n < 2 * group;
        EXPECT_EQ(part[m * w.n + n], mine ? all[m * w.n + n] : -7.0f);
      }
    }
  }
}

TEST_P(Linear, UnpackedRowsAreTheWeightsBitForBit) {
  std::mt19937 rng(7);
  for (WeightFormat format : kFormats) {
    const Weights w = MakeWeights(rng, format, 21, WholeColumns(format, 96));
    const Packed mine(table(), w);
    for (int64_t row : {0, 7, 8, 15, 20}) {
      Floats got(w.k), want(w.k);
      table().unpack_row(mine.matrix, row, got.data());
      if (IsIntegerFormat(format)) {
        ASSERT_TRUE(DequantizeRow(FileFormatOf(format).type, w.rows[row].data(),
                                  w.k, want.data()));
      } else {
        for (int64_t i = 0; i < w.k; ++i) {
          want[i] = static_cast<float>(w.scaled[row * w.k + i]);
        }
      }
      EXPECT_EQ(BitDifference(got.data(), want.data(), w.k), "")
          << static_cast<int>(format);
    }
  }
}

// None leaves a format to the scalar table.
TEST_P(Linear, EveryTablePacksEveryFormat) {
  std::mt19937 rng(8);
  for (WeightFormat format : kFormats) {
    const Weights w = MakeWeights(rng, format, 3, WholeColumns(format, 32));
    EXPECT_TRUE(Packed(table(), w).packed) << static_cast<int>(format);
  }
}

INSTANTIATE_KERNEL_TESTS(Linear);
INSTANTIATE_EMULATED_KERNEL_TESTS(Linear);

}  // namespace
}  // namespace millrace::models
