// RoPE with the write into pages, and paged attention, beside plain loops in
// double precision. The cache is what the kernels see: what no kernel may
// read is NaN there, and pages that no row sees have no number.
//
// Tolerance. A score of d products is off by (d + 8) * 2^-24 times their
// magnitudes, on tensor cores, which cut sums off, by twice that. It moves a
// weight by as much relatively. With f16 a weight is then rounded by 2^-11, or
// by 2^-25 of the greatest one. Moves of weights move the weighted mean of
// values in [-1, 1] by twice their greatest, and those by a part of the
// greatest weight by as much for each of n keys; its own sums are off by n *
// 2^-24 (2^-23). Keys and values in f16 are read back from the cache, and
// queries for f16 are whole f16 times a power of two, so their rounding is no
// error here.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "models/tensor/float16.h"
#include "tests/cuda_emulation/cuda_emulation.h"
#include "tests/cuda_emulation/device_array.h"

namespace millrace::cuda {
namespace {

std::vector<float> Random(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random);
  return values;
}

struct Shape {
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  bool f32;
  int32_t window = 0;
  float softcap = 0;
  // Queries are so much larger, keys so much smaller: a power of two.
  float q_scale = 1;
  bool sinks = false;
};

// Of a head: below, among and far above the scores.
float SinkOf(int32_t head) {
  return head % 3 == 0 ? -1.5f : head % 3 == 1 ? 2.5f : 30.0f;
}

// One sequence of `length` keys on shuffled pages of layer 1 of 2; pages before
// the one of position `first` have no number.
class Cache {
 public:
  Cache(const Shape& shape, int32_t length, int32_t first = 0)
      : shape_(shape),
        page_values_(4 * int64_t{shape.kv_heads} * kPageRows * shape.head_dim),
        pages_(static_cast<size_t>((length + kPageRows - 1) / kPageRows)),
        bytes_(Bytes(shape, page_values_, length, pages_, first)),
        pool_(bytes_) {}

  KvCache View() {
    return {.base = pool_.get(),
            .page_values = page_values_,
            .kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .f32 = shape_.f32};
  }
  const std::vector<int32_t>& pages() const { return pages_; }
  // What kernels have written.
  void Download() { bytes_ = pool_.Read(); }
  double At(bool value, int32_t position, int32_t head, int32_t d) const {
    return Get(shape_, bytes_,
               Place(shape_, page_values_, pages_, value, position, head) + d);
  }

 private:
  static int64_t Place(const Shape& shape, int64_t page_values,
                       const std::vector<int32_t>& pages, bool value,
                       int32_t position, int32_t head) {
    return pages[static_cast<size_t>(position / kPageRows)] * page_values +
           (((int64_t{2} + (value ? 1 : 0)) * shape.kv_heads + head) *
                kPageRows +
            position % kPageRows) *
               shape.head_dim;
  }
  static double Get(const Shape& shape, const std::vector<std::byte>& bytes,
                    int64_t at) {
    return shape.f32 ? reinterpret_cast<const float*>(bytes.data())[at]
                     : models::HalfToFloat(
                           reinterpret_cast<const uint16_t*>(bytes.data())[at]);
  }
  static std::vector<std::byte> Bytes(const Shape& shape, int64_t page_values,
                                      int32_t length,
                                      std::vector<int32_t>& pages,
                                      int32_t first) {
    const auto num_pages = static_cast<int32_t>(pages.size()) + 1;
    std::vector<std::byte> bytes(
        static_cast<size_t>(page_values * num_pages * (shape.f32 ? 4 : 2)),
        std::byte{0xff});  // NaN
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i] = num_pages - 1 - static_cast<int32_t>(i);
    }
    std::mt19937_64 random(77);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int32_t position = first / kPageRows * kPageRows; position < length;
         ++position) {
      for (const bool value : {false, true}) {
        for (int32_t head = 0; head < shape.kv_heads; ++head) {
          const int64_t at =
              Place(shape, page_values, pages, value, position, head);
          for (int64_t d = at; d < at + shape.head_dim; ++d) {
            const float x = uniform(random) / (value ? 1 : shape.q_scale);
            if (shape.f32) {
              reinterpret_cast<float*>(bytes.data())[d] = x;
            } else {
              reinterpret_cast<uint16_t*>(bytes.data())[d] =
                  models::FloatToHalf(x);
            }
          }
        }
      }
    }
    for (int32_t i = 0; i < first / kPageRows; ++i) {
      pages[static_cast<size_t>(i)] = -1;
    }
    return bytes;
  }
  Shape shape_;
  int64_t page_values_;
  std::vector<int32_t> pages_;
  std::vector<std::byte> bytes_;
  DeviceArray<std::byte> pool_;
};

// How the work is cut: rows of an item, and splits of one, 0: all of them, with
// the result in `out`.
struct Cut {
  int32_t rows;
  int32_t splits;
};

// The last `rows` of `length` positions of one sequence.
class Problem {
 public:
  Problem(const Shape& shape, int32_t length, int32_t rows)
      : shape_(shape),
        width_(int64_t{shape.heads} * shape.head_dim),
        rows_(rows),
        first_(length - rows),
        cache_(shape, length, FirstSeen(first_)),
        q_(Random(static_cast<size_t>(rows * width_), 3)) {
    for (float& value : q_) {
      if (!shape.f32) {
        value = models::HalfToFloat(models::FloatToHalf(value));
      }
      value *= shape.q_scale;
    }
  }

  // As the kernels compute it: [rows][heads][head_dim].
  std::vector<float> Run(bool prompts, const Cut& cut) {
    std::vector<AttendItem> items;
    std::vector<AttendMerge> merges;
    int32_t partials = 0;
    const int32_t keys = prompts ? kPromptSplitKeys : kSplitKeys;
    for (int32_t row = 0; row < rows_; row += cut.rows) {
      const int32_t count = std::min(cut.rows, rows_ - row);
      const int32_t begin = FirstSeen(first_ + row) / keys;
      const int32_t splits = (first_ + row + count - 1) / keys + 1 - begin;
      // Nothing, as lists are padded with it.
      items.push_back({row, 0, 0, 0, 0, -1, 0});
      if (cut.splits == 0) {
        items.push_back({row, count, 0, begin, splits, -1, 0});
        continue;
      }
      for (int32_t i = 0; i < splits; i += cut.splits) {
        items.push_back({row, count, 0, begin + i,
                         std::min(cut.splits, splits - i), partials + i,
                         splits});
      }
      for (int32_t i = 0; i < count; ++i) {
        merges.push_back({row + i, partials, splits});
        merges.push_back({row + i, partials, 0});
        partials += splits;
      }
    }
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < rows_; ++i) positions.push_back(first_ + i);
    DeviceArray<float> queries(q_);
    DeviceArray<int32_t> row_positions(positions);
    DeviceArray<int32_t> pages(cache_.pages());
    DeviceArray<AttendItem> all_items(items);
    DeviceArray<AttendMerge> all_merges(merges);
    const auto heads = static_cast<size_t>(partials * shape_.heads);
    DeviceArray<float> most(std::vector<float>(heads, NAN)),
        sum(std::vector<float>(heads, NAN)),
        out_of_split(std::vector<float>(
            heads * static_cast<size_t>(shape_.head_dim), NAN)),
        out(std::vector<float>(q_.size(), NAN));
    std::vector<float> sink_of_head;
    for (int32_t i = 0; i < shape_.heads; ++i)
      sink_of_head.push_back(SinkOf(i));
    DeviceArray<float> sinks(sink_of_head);
    const auto num_items = static_cast<int32_t>(items.size());
    EXPECT_EQ(
        Attend(nullptr, {.kv = cache_.View(),
                         .layer = 1,
                         .heads = shape_.heads,
                         .q = queries.get(),
                         .pitch = width_,
                         .row_positions = row_positions.get(),
                         .pages = pages.get(),
                         .items = prompts ? nullptr : all_items.get(),
                         .num_items = prompts ? 0 : num_items,
                         .prompt_items = prompts ? all_items.get() : nullptr,
                         .num_prompt_items = prompts ? num_items : 0,
                         .merges = all_merges.get(),
                         .num_merges = static_cast<int32_t>(merges.size()),
                         .window = shape_.window,
                         .softcap = shape_.softcap,
                         .sinks = shape_.sinks ? sinks.get() : nullptr,
                         .partial_max = most.get(),
                         .partial_sum = sum.get(),
                         .partial_out = out_of_split.get(),
                         .out = out.get(),
                         .out_pitch = width_}),
        0);
    return out.Read();
  }

  // Every `step`-th row, beside double precision.
  void Check(const std::vector<float>& got, int32_t step) const {
    const int32_t dim = shape_.head_dim;
    const int32_t group = shape_.heads / shape_.kv_heads;
    for (int32_t row = rows_ - 1; row >= 0; row -= step) {
      const int32_t own = first_ + row;
      const int32_t from = FirstSeen(own);
      for (int32_t head = 0; head < shape_.heads; ++head) {
        const float* own_q = q_.data() + row * width_ + head * dim;
        std::vector<double> scores;
        double most = -INFINITY, magnitude = 0;
        for (int32_t key = from; key <= own; ++key) {
          double score = 0, size = 0;
          for (int32_t d = 0; d < dim; ++d) {
            const double product =
                own_q[d] * cache_.At(false, key, head / group, d);
            score += product;
            size += std::fabs(product);
          }
          if (shape_.softcap > 0) {
            score = shape_.softcap * std::tanh(score / shape_.softcap);
          }
          scores.push_back(score);
          most = std::max(most, score);
          magnitude = std::max(magnitude, size);
        }
        double sum = shape_.sinks ? std::exp(SinkOf(head) - most) : 0;
        for (double& score : scores) sum += score = std::exp(score - most);
        const double ulp = shape_.f32 ? 0x1p-24 : 0x1p-23;
        const double keys = own - from + 1;
        const double bound = 2 * (dim + 8) * magnitude * ulp +
                             (keys + 32) * ulp +
                             (shape_.f32 ? 0 : 2 * (0x1p-11 + keys * 0x1p-25));
        for (int32_t d = 0; d < dim; ++d) {
          double want = 0;
          for (int32_t key = from; key <= own; ++key) {
            want += scores[static_cast<size_t>(key - from)] / sum *
                    cache_.At(true, key, head / group, d);
          }
          ASSERT_NEAR(got[static_cast<size_t>(row * width_ + head * dim + d)],
                      want, bound)
              << "position " << own << " head " << head << " value " << d;
        }
      }
    }
  }

 private:
  int32_t FirstSeen(int32_t position) const {
    return shape_.window == 0 ? 0 : std::max(0, position - shape_.window + 1);
  }

  const Shape shape_;
  const int64_t width_;
  const int32_t rows_;
  const int32_t first_;  // position
  Cache cache_;
  std::vector<float> q_;
};

class EveryShape : public testing::TestWithParam<Shape> {
 protected:
  int32_t MostRows(bool prompts) const {
    const Shape& shape = GetParam();
    return RowsOfItem(PairsOfItem(shape.f32, prompts, shape.head_dim),
                      shape.heads, shape.kv_heads);
  }
};

// Rows of completions, each in every item that they may be in: every value
// within its bound, and always the same bits.
TEST_P(EveryShape, RowsHaveTheSameBitsHoweverCut) {
  for (const int32_t length : {1, 64, 257, 1100}) {
    Problem problem(GetParam(), length, std::min(length, 3));
    const std::vector<float> whole = problem.Run(false, {MostRows(false), 0});
    problem.Check(whole, 1);
    for (const Cut& cut : {Cut{1, 0}, Cut{1, 1}, Cut{MostRows(false), 2}}) {
      EXPECT_EQ(problem.Run(false, cut), whole)
          << cut.rows << " rows, " << cut.splits << " splits of " << length;
    }
  }
}

// Rows of prompts, in chunks of other sizes. Pages of f32 have no such way.
using EveryShapeOfPrompts = EveryShape;
TEST_P(EveryShapeOfPrompts, HaveTheSameBitsHoweverCut) {
  for (const int32_t length : {1, 65, 290}) {
    Problem problem(GetParam(), length, std::min(length, 70));
    const std::vector<float> whole = problem.Run(true, {MostRows(true), 0});
    problem.Check(whole, 9);
    for (const Cut& cut :
         {Cut{std::min(MostRows(true), 13), 0}, Cut{MostRows(true), 1}}) {
      EXPECT_EQ(problem.Run(true, cut), whole)
          << cut.rows << " rows, " << cut.splits << " splits of " << length;
    }
  }
}

constexpr Shape kF32Shapes[] = {
    {3, 1, 16, true},  {2, 2, 128, true},    {12, 1, 6, true},
    {1, 1, 256, true}, {4, 2, 16, true, 70}, {6, 2, 16, true, 0, 0, 1, true}};
constexpr Shape kF16Shapes[] = {{4, 2, 10, false},
                                {9, 3, 64, false},
                                {2, 1, 96, false},
                                {2, 2, 128, false},
                                {8, 1, 128, false},
                                {1, 1, 256, false},
                                {20, 1, 80, false},
                                {4, 1, 16, false, 300, 2},
                                {2, 1, 72, false, 70},
                                {2, 1, 64, false, 0, 0, 0x1p17f},
                                {6, 2, 64, false, 90, 0, 1, true},
                                {3, 1, 128, false, 0, 0, 1, true}};
std::string Name(const testing::TestParamInfo<Shape>& test) {
  return "shape" + std::to_string(test.index);
}
INSTANTIATE_TEST_SUITE_P(F32, EveryShape, testing::ValuesIn(kF32Shapes), Name);
INSTANTIATE_TEST_SUITE_P(F16, EveryShape, testing::ValuesIn(kF16Shapes), Name);
INSTANTIATE_TEST_SUITE_P(F16, EveryShapeOfPrompts,
                         testing::ValuesIn(kF16Shapes), Name);

// Longer than a split of prompts, or than the partial results that a warp joins
// at a time.
TEST(Attention, LongPromptsAndRowsAreJoined) {
  for (const int32_t window : {0, 4000}) {
    Problem problem({1, 1, 16, false, window}, 2 * kPromptSplitKeys + 100, 3);
    const std::vector<float> prompts = problem.Run(true, {3, 0});
    problem.Check(prompts, 2);
    EXPECT_EQ(problem.Run(true, {3, 1}), prompts);
    EXPECT_EQ(problem.Run(true, {1, 2}), prompts);
    const std::vector<float> rows = problem.Run(false, {3, 0});
    problem.Check(rows, 2);
    EXPECT_EQ(problem.Run(false, {1, 1}), rows);
    EXPECT_EQ(problem.Run(false, {2, 7}), rows);
  }
}

TEST(Attention, RefusesWhatNoKernelTakes) {
  AttendArgs args{.kv = {.kv_heads = 1, .head_dim = 258}, .heads = 1};
  EXPECT_NE(Attend(nullptr, args), 0);
  args.kv.head_dim = 7;
  EXPECT_NE(Attend(nullptr, args), 0);
  args.kv = {.kv_heads = 1, .head_dim = 64, .f32 = true};
  args.num_prompt_items = 1;
  EXPECT_NE(Attend(nullptr, args), 0);
}

TEST(Rope, WhatF16CannotHoldIsStoredAsItsGreatest) {
  const Shape shape{1, 1, 4, false};
  Cache cache(shape, 64);
  DeviceArray<float> x(
      {0, 0, 0, 0, 1e6f, -1e6f, 3, INFINITY, 70000, -70000, 65504, 1});
  DeviceArray<int32_t> positions({5}), pages({cache.pages()[0]});
  ASSERT_EQ(RopeWriteKv(nullptr, {.kv = cache.View(),
                                  .layer = 1,
                                  .heads = 1,
                                  .qkv = x.get(),
                                  .pitch = 12,
                                  .rows = 1,
                                  .row_positions = positions.get(),
                                  .row_pages = pages.get()}),
            0);
  cache.Download();
  const double keys[] = {65504, -65504, 3, 65504};
  const double values[] = {65504, -65504, 65504, 1};
  for (int32_t d = 0; d < 4; ++d) {
    EXPECT_EQ(cache.At(false, 5, 0, d), keys[d]);
    EXPECT_EQ(cache.At(true, 5, 0, d), values[d]);
  }
}

TEST(Rope, NormalisesRotatesAndStores) {
  for (const bool interleaved : {false, true}) {
    for (const bool norms : {false, true}) {
      for (const int32_t rope_dims : {0, 6, 10}) {
        const Shape shape{3, 2, 10, !norms};
        Cache cache(shape, 130);
        const int32_t d = 10, rows = 2;
        const int64_t pitch = 72;  // 7 heads and padding
        const auto qkv = Random(static_cast<size_t>(rows * pitch), 9);
        const auto q_norm = Random(10, 10), k_norm = Random(10, 11);
        const auto frequencies = Random(5, 12);
        DeviceArray<float> x(qkv), q_norms(q_norm), k_norms(k_norm),
            angles(frequencies);
        const std::vector<int32_t> positions = {129, 63};
        DeviceArray<int32_t> row_positions(positions);
        DeviceArray<int32_t> row_pages({cache.pages()[2], cache.pages()[0]});
        ASSERT_EQ(
            RopeWriteKv(nullptr,
                        {.kv = cache.View(),
                         .layer = 1,
                         .heads = 3,
                         .qkv = x.get(),
                         .pitch = pitch,
                         .rows = rows,
                         .row_positions = row_positions.get(),
                         .row_pages = row_pages.get(),
                         .frequencies = rope_dims > 0 ? angles.get() : nullptr,
                         .magnitude = 1.5f,
                         .rope_dims = rope_dims,
                         .interleaved = interleaved,
                         .q_norm = norms ? q_norms.get() : nullptr,
                         .k_norm = norms ? k_norms.get() : nullptr,
                         .eps = 1e-6f,
                         .q_scale = 0.5f}),
            0);
        const auto got = x.Read();
        cache.Download();
        for (int32_t row = 0; row < rows; ++row) {
          for (int32_t head = 0; head < 7; ++head) {
            const float* in = qkv.data() + row * pitch + head * d;
            std::vector<double> want(in, in + d);
            if (norms && head < 5) {
              double squares = 0;
              for (const double v : want) squares += v * v;
              const double r = 1 / std::sqrt(squares / d + 1e-6);
              for (int32_t i = 0; i < d; ++i) {
                want[static_cast<size_t>(i)] *=
                    r * (head < 3 ? q_norm : k_norm)[static_cast<size_t>(i)];
              }
            }
            for (int32_t i = 0; i < rope_dims / 2 && head < 5; ++i) {
              double& a = want[static_cast<size_t>(interleaved ? 2 * i : i)];
              double& b = want[static_cast<size_t>(
                  interleaved ? 2 * i + 1 : i + rope_dims / 2)];
              const double angle = positions[static_cast<size_t>(row)] *
                                   double{frequencies[static_cast<size_t>(i)]};
              const double c = 1.5 * std::cos(angle), s = 1.5 * std::sin(angle);
              const double rotated = a * c - b * s;
              b = a * s + b * c;
              a = rotated;
            }
            for (int32_t i = 0; i < d; ++i) {
              const auto u = static_cast<size_t>(i);
              // An angle of up to 129 radians is rounded by 2^-18; then, of k
              // and v in f16, by 2^-11 of the value.
              const double bound =
                  8 * 0x1p-18 +
                  (norms && head >= 3 ? 0x1p-11 * std::fabs(want[u]) : 0);
              const int32_t position = positions[static_cast<size_t>(row)];
              const double value =
                  head < 3
                      ? got[static_cast<size_t>(row * pitch + head * d + i)]
                  : head < 5 ? cache.At(false, position, head - 3, i)
                             : cache.At(true, position, head - 5, i);
              ASSERT_NEAR(value, head < 3 ? want[u] / 2 : want[u], bound)
                  << head << " " << i;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::cuda
