// RoPE with the write into pages, and paged attention, beside plain loops in
// double precision.
//
// Tolerance: weights are exp of f32 scores. A score of d products is off by
// (d + 8) * 2^-24 times the magnitudes, which moves a weight by as much
// relatively; the weighted mean of values in [-1, 1] moves by at most twice the
// greatest such move, and its own sums over n keys by n * 2^-24. Keys and
// values in f16 are read back from the cache, so their rounding is no error
// here.
#include <gtest/gtest.h>

#include <cmath>
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
};

// One sequence of `length` keys on shuffled pages of layer 1 of 2.
class Cache {
 public:
  Cache(const Shape& shape, int32_t length, int32_t num_pages)
      : shape_(shape),
        page_values_(4 * int64_t{shape.kv_heads} * kPageRows * shape.head_dim),
        pool_(Bytes(shape, page_values_ * num_pages)) {
    pages_.resize(static_cast<size_t>((length + kPageRows - 1) / kPageRows));
    for (size_t i = 0; i < pages_.size(); ++i) {
      pages_[i] = num_pages - 1 - static_cast<int32_t>(i);
    }
  }

  KvCache View() {
    return {.base = pool_.get(),
            .page_values = page_values_,
            .kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .f32 = shape_.f32};
  }
  const std::vector<int32_t>& pages() const { return pages_; }
  double At(bool value, int32_t position, int32_t head, int32_t d) const {
    const std::byte* base = const_cast<Cache*>(this)->pool_.get();
    const int64_t at =
        pages_[static_cast<size_t>(position / kPageRows)] * page_values_ +
        ((int64_t{2} + (value ? 1 : 0)) * shape_.kv_heads + head) * kPageRows *
            shape_.head_dim +
        int64_t{position % kPageRows} * shape_.head_dim + d;
    return shape_.f32 ? reinterpret_cast<const float*>(base)[at]
                      : models::HalfToFloat(
                            reinterpret_cast<const uint16_t*>(base)[at]);
  }

 private:
  static std::vector<std::byte> Bytes(const Shape& shape, int64_t n) {
    const auto values = Random(static_cast<size_t>(n), 77);
    std::vector<std::byte> bytes(static_cast<size_t>(n * (shape.f32 ? 4 : 2)));
    for (size_t i = 0; i < values.size(); ++i) {
      if (shape.f32) {
        reinterpret_cast<float*>(bytes.data())[i] = values[i];
      } else {
        reinterpret_cast<uint16_t*>(bytes.data())[i] =
            models::FloatToHalf(values[i]);
      }
    }
    return bytes;
  }
  Shape shape_;
  int64_t page_values_;
  DeviceArray<std::byte> pool_;
  std::vector<int32_t> pages_;
};

class EveryShape : public testing::TestWithParam<Shape> {};

// The last `rows` of `length` positions, whole or in splits, in tiles of any
// size: every value within its bound, and always the same bits.
TEST_P(EveryShape, AttendsThroughPagesWithTheSameBitsHoweverCut) {
  const Shape shape = GetParam();
  const int32_t dim = shape.head_dim;
  const int64_t width = int64_t{shape.heads} * dim;
  for (const int32_t length : {1, 64, 257, 530}) {
    Cache cache(shape, length, 12);
    const int32_t rows = std::min(length, 5);
    const auto q = Random(static_cast<size_t>(rows * width), 3);
    DeviceArray<float> queries(q);
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < rows; ++i) positions.push_back(length - rows + i);
    DeviceArray<int32_t> row_positions(positions);
    DeviceArray<int32_t> pages(cache.pages());

    const auto first_split = [&](int32_t row) {
      const int32_t position = positions[static_cast<size_t>(row)];
      return shape.window == 0
                 ? 0
                 : std::max(0, position - shape.window + 1) / kSplitKeys;
    };
    const auto end_split = [&](int32_t row) {
      return positions[static_cast<size_t>(row)] / kSplitKeys + 1;
    };
    std::vector<float> all;
    for (const int32_t tile : {RowsOfItem(shape.heads, shape.kv_heads), 1, 0}) {
      std::vector<AttendItem> items;
      std::vector<AttendMerge> merges;
      int32_t partials = 0;
      for (int32_t row = 0; row < rows; row += std::max(tile, 1)) {
        const int32_t count = std::min(std::max(tile, 1), rows - row);
        const int32_t begin = first_split(row);
        const int32_t splits = end_split(row + count - 1) - begin;
        if (tile > 0) {
          items.push_back({row, count, 0, begin, splits, -1});
          continue;
        }
        merges.push_back({row, partials, splits});
        for (int32_t i = 0; i < splits; ++i) {
          items.push_back({row, 1, 0, begin + i, 1, partials++});
        }
      }
      DeviceArray<AttendItem> all_items(items);
      DeviceArray<AttendMerge> all_merges(merges);
      const auto heads = static_cast<size_t>(partials * shape.heads);
      DeviceArray<float> most(std::vector<float>(heads, NAN)),
          sum(std::vector<float>(heads, NAN)),
          out_of_split(
              std::vector<float>(heads * static_cast<size_t>(dim), NAN)),
          out(std::vector<float>(q.size(), NAN));
      ASSERT_EQ(
          Attend(nullptr, {.kv = cache.View(),
                           .layer = 1,
                           .heads = shape.heads,
                           .q = queries.get(),
                           .pitch = width,
                           .row_positions = row_positions.get(),
                           .pages = pages.get(),
                           .items = all_items.get(),
                           .num_items = static_cast<int32_t>(items.size()),
                           .merges = all_merges.get(),
                           .num_merges = static_cast<int32_t>(merges.size()),
                           .window = shape.window,
                           .softcap = shape.softcap,
                           .partial_max = most.get(),
                           .partial_sum = sum.get(),
                           .partial_out = out_of_split.get(),
                           .out = out.get(),
                           .out_pitch = width}),
          0);
      if (all.empty()) all = out.Read();
      EXPECT_EQ(out.Read(), all) << "how work is cut shows";
    }

    const int32_t group = shape.heads / shape.kv_heads;
    for (int32_t row = 0; row < rows; ++row) {
      const int32_t own = positions[static_cast<size_t>(row)];
      const int32_t from =
          shape.window == 0 ? 0 : std::max(0, own - shape.window + 1);
      for (int32_t head = 0; head < shape.heads; ++head) {
        const float* own_q = q.data() + row * width + head * dim;
        std::vector<double> scores;
        double most = -INFINITY, magnitude = 0;
        for (int32_t key = from; key <= own; ++key) {
          double score = 0, size = 0;
          for (int32_t d = 0; d < dim; ++d) {
            const double product =
                own_q[d] * cache.At(false, key, head / group, d);
            score += product;
            size += std::fabs(product);
          }
          if (shape.softcap > 0) {
            score = shape.softcap * std::tanh(score / shape.softcap);
          }
          scores.push_back(score);
          most = std::max(most, score);
          magnitude = std::max(magnitude, size);
        }
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - most);
        const double bound =
            (2 * (dim + 8) * magnitude + own - from + 16) * 0x1p-24;
        for (int32_t d = 0; d < dim; ++d) {
          double want = 0;
          for (int32_t key = from; key <= own; ++key) {
            want += scores[static_cast<size_t>(key - from)] / sum *
                    cache.At(true, key, head / group, d);
          }
          ASSERT_NEAR(all[static_cast<size_t>(row * width + head * dim + d)],
                      want, bound)
              << "row " << row << " head " << head << " of " << length;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EveryShape,
    testing::Values(Shape{3, 1, 16, true}, Shape{4, 2, 10, false},
                    Shape{9, 3, 64, false}, Shape{12, 1, 6, true},
                    Shape{2, 2, 128, false}, Shape{1, 1, 256, true},
                    Shape{4, 2, 16, true, 70}, Shape{4, 1, 16, false, 300, 2}),
    [](const auto& test) { return "shape" + std::to_string(test.index); });

TEST(Rope, NormalisesRotatesAndStores) {
  for (const bool interleaved : {false, true}) {
    for (const bool norms : {false, true}) {
      for (const int32_t rope_dims : {0, 6, 10}) {
        const Shape shape{3, 2, 10, !norms};
        Cache cache(shape, 130, 3);
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
