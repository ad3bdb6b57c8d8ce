// Embedding bags of every type of row: beside sums in double, and bit for bit
// beside scalar. A sum of n products in f32 is off by n + 1 roundings of the
// sum of magnitudes at most.
#include "models/cpu/pool_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "models/tensor/float16.h"
#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

constexpr int64_t kRows = 50;

class PoolRowsTest : public DenseTest {};
INSTANTIATE_DENSE_TESTS(PoolRowsTest);

// A table of random values: what is stored, and what that stands for.
struct Table {
  std::vector<std::byte> bytes;
  int64_t row_bytes = 0;
  std::vector<double> values;  // [kRows][size]
};

void Append(std::vector<std::byte>& bytes, const void* from, size_t count) {
  const auto* at = static_cast<const std::byte*>(from);
  bytes.insert(bytes.end(), at, at + count);
}

Table MakeTable(TableRows type, int64_t size, std::mt19937& random) {
  std::uniform_real_distribution<float> any(-2, 2);
  Table table;
  for (int64_t row = 0; row < kRows; ++row) {
    const float scale = 0.25f + any(random) * 0.0625f;
    const float bias = any(random);
    for (int64_t i = 0; i < size; ++i) {
      const float x = any(random);
      if (type == TableRows::kF32) {
        Append(table.bytes, &x, sizeof x);
        table.values.push_back(x);
      } else if (type == TableRows::kF16) {
        const Half half(x);
        Append(table.bytes, &half, sizeof half);
        table.values.push_back(static_cast<float>(half));
      } else if (type == TableRows::kBf16) {
        const BFloat16 half(x);
        Append(table.bytes, &half, sizeof half);
        table.values.push_back(static_cast<float>(half));
      } else {
        const auto q = static_cast<uint8_t>(random() % 256);
        Append(table.bytes, &q, 1);
        table.values.push_back(double{scale} * q + double{bias});
      }
    }
    if (type == TableRows::kInt8) {
      Append(table.bytes, &scale, sizeof scale);
      Append(table.bytes, &bias, sizeof bias);
    }
  }
  table.row_bytes = static_cast<int64_t>(table.bytes.size()) / kRows;
  return table;
}

struct Case {
  TableRows type;
  BagPool pool;
  bool weighs;
  int64_t size;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const TableRows type :
       {TableRows::kF32, TableRows::kF16, TableRows::kBf16, TableRows::kInt8}) {
    for (const BagPool pool : {BagPool::kSum, BagPool::kMean, BagPool::kMax}) {
      // Whole vectors, blocks of each width, and what is left of them.
      for (const int64_t size : {1, 7, 16, 64, 100, 128, 300}) {
        cases.push_back({type, pool, false, size});
        if (pool == BagPool::kSum) cases.push_back({type, pool, true, size});
      }
    }
  }
  return cases;
}

TEST_P(PoolRowsTest, PoolsBagsOfEveryTypeOfRow) {
  std::mt19937 random(7);
  for (const Case& each : Cases()) {
    const Table made = MakeTable(each.type, each.size, random);
    const std::vector<int64_t> offsets = {0, 3, 3, 20, 21, 60, 60};
    const int64_t bags = 7;  // the last one ends with the rows
    const int64_t num_rows = 64;
    std::vector<int64_t> rows;
    std::vector<int32_t> rows32;
    std::vector<float> weights;
    for (int64_t i = 0; i < num_rows; ++i) {
      rows.push_back(static_cast<int64_t>(random() % kRows));
      rows32.push_back(static_cast<int32_t>(rows.back()));
      weights.push_back(static_cast<float>(random() % 100) / 50 - 1);
    }
    const int64_t padding = rows[5];
    std::vector<float> got(static_cast<size_t>(bags * each.size), -1);
    std::vector<float> want = got;
    PoolRowsArgs args{.table = made.bytes.data(),
                      .type = each.type,
                      .pool = each.pool,
                      .size = each.size,
                      .row_bytes = made.row_bytes,
                      .rows = rows.data(),
                      .offsets = offsets.data(),
                      .num_offsets = static_cast<int64_t>(offsets.size()),
                      .num_rows = num_rows,
                      .weights = each.weighs ? weights.data() : nullptr,
                      .padding_row = padding,
                      .bag_begin = 0,
                      .bag_end = bags,
                      .out = want.data()};
    PoolRowsScalar(args);
    args.out = got.data();
    args.rows = nullptr;
    args.rows32 = rows32.data();
    // In parts, as the members of a team do it.
    for (const auto& [begin, end] : {std::pair{0, 2}, {2, 5}, {5, 7}}) {
      args.bag_begin = begin;
      args.bag_end = end;
      PoolRowsOf(table().name)(args);
    }
    const std::string what = "type " + std::to_string(int(each.type)) +
                             ", pool " + std::to_string(int(each.pool)) +
                             ", size " + std::to_string(each.size);
    EXPECT_EQ(Difference(got.data(), want.data(), bags * each.size), "")
        << what;
    for (int64_t bag = 0; bag < bags; ++bag) {
      const int64_t begin = offsets[static_cast<size_t>(bag)];
      const int64_t end =
          bag + 1 < bags ? offsets[static_cast<size_t>(bag + 1)] : num_rows;
      for (int64_t j = 0; j < each.size; ++j) {
        double sum = 0;
        double magnitude = 0;
        double most = -1e9;
        int64_t count = 0;
        for (int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<size_t>(i);
          if (rows[at] == padding) continue;
          const double x =
              made.values[static_cast<size_t>(rows[at] * each.size + j)];
          const double w = each.weighs ? double{weights[at]} : 1.0;
          sum += w * x;
          // A bias may cancel what is multiplied with the scale.
          magnitude += std::abs(w) * (std::abs(x) + 300);
          most = std::max(most, x);
          ++count;
        }
        if (each.pool == BagPool::kMean && count > 0) {
          sum /= static_cast<double>(count);
          magnitude /= static_cast<double>(count);
        }
        const double expected = count == 0                   ? 0
                                : each.pool == BagPool::kMax ? most
                                                             : sum;
        const double roundings = static_cast<double>(end - begin) + 3;
        const bool exact = each.type != TableRows::kInt8;
        const double bound =
            exact && each.pool == BagPool::kMax
                ? 0
                : (exact ? magnitude / 100 : magnitude) * roundings * 0x1p-24;
        ASSERT_NEAR(got[static_cast<size_t>(bag * each.size + j)], expected,
                    bound + 1e-30)
            << what << ", bag " << bag << ", column " << j;
      }
    }
  }
}

TEST_P(PoolRowsTest, BagsOfOneSizeNeedNoOffsets) {
  const std::vector<float> stored = {1, 2, 4, 8};
  const std::vector<int64_t> rows = {0, 1, 2, 3, 3, 3};
  std::vector<float> out(3);
  PoolRowsOf(table().name)(
      {.table = reinterpret_cast<const std::byte*>(stored.data()),
       .size = 1,
       .row_bytes = 4,
       .rows = rows.data(),
       .bag_rows = 2,
       .num_rows = 6,
       .bag_end = 3,
       .out = out.data()});
  EXPECT_EQ(out, (std::vector<float>{3, 12, 16}));
}

}  // namespace
}  // namespace millrace::models
