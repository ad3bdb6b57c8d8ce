// Paged attention beside plain loops in double precision.
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

#include "tests/cuda_emulation/kernel_inputs.h"
#include "tests/cuda_emulation/kv_pages.h"

namespace millrace::cuda {
namespace {

struct Shape {
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  KvFormat format;
  int32_t window = 0;
  float softcap = 0;
  // Queries are so much larger, keys so much smaller: a power of two.
  float q_scale = 1;
  bool sinks = false;
  bool chunked = false;
};

// Of a head: below, among and far above the scores.
float SinkOf(int32_t head) {
  return head % 3 == 0 ? -1.5f : head % 3 == 1 ? 2.5f : 30.0f;
}

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
        cache_({shape.kv_heads, shape.head_dim, shape.format, shape.q_scale},
               length, FirstSeen(first_)),
        q_(Random(static_cast<size_t>(rows * width_), 3)) {
    for (float& value : q_) {
      if (shape.format != KvFormat::kF32) {
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
                         .chunked = shape_.chunked,
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
        const bool f32 = shape_.format == KvFormat::kF32;
        const double ulp = f32 ? 0x1p-24 : 0x1p-23;
        const double keys = own - from + 1;
        const double bound = 2 * (dim + 8) * magnitude * ulp +
                             (keys + 32) * ulp +
                             (f32 ? 0 : 2 * (0x1p-11 + keys * 0x1p-25));
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
    if (shape_.window == 0) return 0;
    if (shape_.chunked) return position / shape_.window * shape_.window;
    return std::max(0, position - shape_.window + 1);
  }

  const Shape shape_;
  const int64_t width_;
  const int32_t rows_;
  const int32_t first_;  // position
  KvPages cache_;
  std::vector<float> q_;
};

class EveryShape : public testing::TestWithParam<Shape> {
 protected:
  int32_t MostRows(bool prompts) const {
    const Shape& shape = GetParam();
    return RowsOfItem(PairsOfItem(shape.format, prompts, shape.head_dim),
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

using enum KvFormat;
constexpr Shape kF32Shapes[] = {{3, 1, 16, kF32},
                                {2, 2, 128, kF32},
                                {12, 1, 6, kF32},
                                {1, 1, 256, kF32},
                                {4, 2, 16, kF32, 70},
                                {6, 2, 16, kF32, 0, 0, 1, true},
                                {4, 2, 16, kF32, 99, 0, 1, false, true}};
constexpr Shape kF16Shapes[] = {{4, 2, 10, kF16},
                                {9, 3, 64, kF16},
                                {2, 1, 96, kF16},
                                {2, 2, 128, kF16},
                                {8, 1, 128, kF16},
                                {1, 1, 256, kF16},
                                {20, 1, 80, kF16},
                                {4, 1, 16, kF16, 300, 2},
                                {2, 1, 72, kF16, 70},
                                {2, 1, 64, kF16, 0, 0, 0x1p17f},
                                {6, 2, 64, kF16, 90, 0, 1, true},
                                {3, 1, 128, kF16, 0, 0, 1, true},
                                {4, 2, 64, kF16, 99, 0, 1, false, true},
                                {2, 2, 16, kF16, 24, 0, 1, false, true}};
constexpr Shape kInt8Shapes[] = {{4, 2, 10, kInt8},
                                 {9, 3, 64, kInt8},
                                 {2, 1, 96, kInt8},
                                 {8, 1, 128, kInt8},
                                 {1, 1, 256, kInt8},
                                 {20, 1, 80, kInt8},
                                 {4, 1, 16, kInt8, 300, 2},
                                 {2, 1, 64, kInt8, 0, 0, 0x1p17f},
                                 {6, 2, 64, kInt8, 90, 0, 1, true},
                                 {4, 2, 128, kInt8, 99, 0, 1, false, true}};
std::string Name(const testing::TestParamInfo<Shape>& test) {
  return "shape" + std::to_string(test.index);
}
INSTANTIATE_TEST_SUITE_P(F32, EveryShape, testing::ValuesIn(kF32Shapes), Name);
INSTANTIATE_TEST_SUITE_P(F16, EveryShape, testing::ValuesIn(kF16Shapes), Name);
INSTANTIATE_TEST_SUITE_P(F16, EveryShapeOfPrompts,
                         testing::ValuesIn(kF16Shapes), Name);
INSTANTIATE_TEST_SUITE_P(Int8, EveryShape, testing::ValuesIn(kInt8Shapes),
                         Name);
INSTANTIATE_TEST_SUITE_P(Int8, EveryShapeOfPrompts,
                         testing::ValuesIn(kInt8Shapes), Name);

// Longer than a split of prompts, or than the partial results that a warp joins
// at a time.
TEST(Attention, LongPromptsAndRowsAreJoined) {
  for (const auto& [format, window] :
       {std::pair{kF16, 0}, {kF16, 4000}, {kInt8, 0}}) {
    Problem problem({1, 1, 16, format, window}, 2 * kPromptSplitKeys + 100, 3);
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
  args.kv = KvCacheOf(KvFormat::kF32, 1, 1, 64);
  args.num_prompt_items = 1;
  EXPECT_NE(Attend(nullptr, args), 0);
}

}  // namespace
}  // namespace millrace::cuda
