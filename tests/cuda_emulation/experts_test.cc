// The kernels of mixtures of experts under the emulation, beside plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/kernel_inputs.h"

namespace millrace::cuda {
namespace {

struct Routed {
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};
// Rows of logits, from the last to the first if `turned`.
Routed Route(const std::vector<float>& logits, int32_t rows, int32_t experts,
             int32_t used, bool normalise, bool turned = false,
             bool sigmoid = false) {
  DeviceArray<float> on_device(logits);
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  std::iota(ids.rbegin(), ids.rend(), 0);
  DeviceArray<int32_t> row_ids(ids);
  DeviceArray<int32_t> chosen(
      std::vector<int32_t>(static_cast<size_t>(rows * used), -7));
  DeviceArray<float> weights(
      std::vector<float>(static_cast<size_t>(rows * used)));
  EXPECT_EQ(
      RouteRows(nullptr, {.logits = on_device.get(),
                          .pitch = static_cast<int64_t>(logits.size()) / rows,
                          .row_ids = turned ? row_ids.get() : nullptr,
                          .rows = rows,
                          .experts = experts,
                          .used = used,
                          .normalise = normalise,
                          .sigmoid = sigmoid,
                          .chosen = chosen.get(),
                          .weights = weights.get()}),
      0);
  return {chosen.Read(), weights.Read()};
}

TEST(Routing, TakesTheGreatestInAscendingOrder) {
  for (const auto& [experts, used] :
       {std::pair{4, 2}, {60, 4}, {130, 8}, {32, 32}, {3, 1}}) {
    for (const bool normalise : {false, true}) {
      const int32_t rows = 6;
      const int64_t pitch = experts + 1;  // one more, which does not compete
      auto logits = Random(static_cast<size_t>(rows * pitch), 2);
      for (float& logit : logits) logit *= 9;
      for (int32_t e = 0; e < experts; ++e) logits[e] = 0.5f;  // all the same
      for (int32_t row = 0; row < rows; ++row) {
        logits[static_cast<size_t>(row * pitch + experts)] = 100;
      }
      const Routed got = Route(logits, rows, experts, used, normalise);
      const Routed turned = Route(logits, rows, experts, used, normalise, true);
      for (int32_t row = 0; row < rows; ++row) {
        const float* own = logits.data() + row * pitch;
        std::vector<int32_t> order(static_cast<size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(
            order, [&](int32_t a, int32_t b) { return own[a] > own[b]; });
        double sum = 0;
        const size_t of = normalise ? static_cast<size_t>(used) : order.size();
        for (size_t e = 0; e < of; ++e) {
          sum += std::exp(double{own[order[e]]} - own[order[0]]);
        }
        const float most = own[order[0]];
        order.resize(static_cast<size_t>(used));
        std::ranges::sort(order);
        for (int32_t k = 0; k < used; ++k) {
          const auto at = static_cast<size_t>(row * used + k);
          const int32_t expert = order[static_cast<size_t>(k)];
          EXPECT_EQ(got.chosen[at], expert);
          const auto turned_at =
              static_cast<size_t>((rows - 1 - row) * used + k);
          EXPECT_EQ(turned.chosen[turned_at], expert);
          EXPECT_EQ(turned.weights[turned_at], got.weights[at]);
          const double want = std::exp(double{own[expert]} - most) / sum;
          EXPECT_NEAR(got.weights[at], want, Bound(experts, 4 * want));
        }
      }
    }
  }
}

TEST(Routing, WeightsMayBeTheSigmoidOfLogits) {
  const Routed got =
      Route({3, -1, 40, 2, -90, -80, -85, -100}, 2, 4, 2, false, false, true);
  EXPECT_EQ(got.chosen, (std::vector<int32_t>{0, 2, 1, 2}));
  const double logits[] = {3, 40, -80, -85};
  for (size_t i = 0; i < 4; ++i) {
    const double want = 1 / (1 + std::exp(-logits[i]));
    EXPECT_NEAR(got.weights[i], want, Bound(1, want));
  }
}

TEST(Routing, ChoosesSomeExpertsWhateverTheLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Routed got =
      Route({nan, nan, nan, -inf, -inf, -inf, inf, nan, 1}, 3, 3, 2, true);
  for (const int32_t expert : got.chosen) {
    EXPECT_GE(expert, 0);
    EXPECT_LT(expert, 3);
  }
  EXPECT_EQ(got.chosen[2], 0);
  EXPECT_EQ(got.chosen[3], 1);
  EXPECT_EQ(got.chosen[4], 0);
  EXPECT_EQ(got.chosen[5], 2);
}

// Uses by expert on the device.
struct Ordered {
  Ordered(const std::vector<int32_t>& uses, int32_t experts, int32_t tile_rows)
      : num_tiles(
            MostTiles(static_cast<int32_t>(uses.size()), experts, tile_rows)),
        chosen(uses),
        order(std::vector<int32_t>(uses.size(), -1)),
        tiles(
            std::vector<ExpertTile>(static_cast<size_t>(num_tiles), {9, 9, 9})),
        counts(std::vector<int32_t>(static_cast<size_t>(experts), -1)),
        num_read(std::vector<int32_t>{-1}) {
    EXPECT_EQ(OrderUses(nullptr, {.chosen = chosen.get(),
                                  .uses = static_cast<int32_t>(uses.size()),
                                  .experts = experts,
                                  .tile_rows = tile_rows,
                                  .order = order.get(),
                                  .counts = counts.get(),
                                  .num_read = num_read.get(),
                                  .tiles = tiles.get(),
                                  .num_tiles = num_tiles}),
              0);
  }
  const int32_t num_tiles;
  DeviceArray<int32_t> chosen;
  DeviceArray<int32_t> order;
  DeviceArray<ExpertTile> tiles;
  DeviceArray<int32_t> counts;
  DeviceArray<int32_t> num_read;
};

// 2,500 uses are three rounds of a block.
TEST(Experts, HaveTheirUsesInOrderAndInTiles) {
  std::mt19937_64 random(11);
  for (const auto& [uses, experts] :
       {std::pair{1, 1}, {6, 300}, {700, 5}, {1024, 3}, {2500, 40}}) {
    for (const int32_t tile_rows : {1, 8, 32, 128}) {
      std::vector<int32_t> chosen(static_cast<size_t>(uses));
      // Expert 2 has none, where there are more.
      for (int32_t& expert : chosen) {
        expert =
            static_cast<int32_t>(random() % static_cast<uint64_t>(experts));
        if (expert == 2) expert = 0;
      }
      Ordered got(chosen, experts, tile_rows);
      std::vector<int32_t> want(chosen.size());
      std::iota(want.begin(), want.end(), 0);
      std::ranges::stable_sort(want, {}, [&](int32_t use) {
        return chosen[static_cast<size_t>(use)];
      });
      EXPECT_EQ(got.order.Read(), want);
      const auto tiles = got.tiles.Read();
      size_t tile = 0;
      int32_t first = 0, read = 0;
      for (int32_t e = 0; e < experts; ++e) {
        const auto count = static_cast<int32_t>(std::ranges::count(chosen, e));
        EXPECT_EQ(got.counts.Read()[static_cast<size_t>(e)], count);
        read += count > 0 ? 1 : 0;
        for (int32_t i = 0; i < count; i += tile_rows, ++tile) {
          ASSERT_LT(tile, tiles.size());
          EXPECT_EQ(tiles[tile].expert, e);
          EXPECT_EQ(tiles[tile].first, first + i);
          EXPECT_EQ(tiles[tile].count, std::min(tile_rows, count - i));
        }
        first += count;
      }
      for (; tile < tiles.size(); ++tile) EXPECT_EQ(tiles[tile].count, 0);
      EXPECT_EQ(got.num_read.Read()[0], read);
    }
  }
}

// Rows of x that are not in order, and uses of experts that depend on the row:
// every product beside a sum in double precision, and with the same bits
// whatever steps and tiles the rows are in.
struct Way {
  GgmlType type;
  InputFormat input;
  // What a product of a weight and a value loses before it is summed, of its
  // magnitude: 2^-11 of each that becomes f16, 2^-8 of one that becomes bf16.
  double error;
};
class ExpertsInEveryWay : public testing::TestWithParam<Way> {};

TEST_P(ExpertsInEveryWay, MultiplyTheirOwnUsesAndGiveTheSameBitsInAnyTile) {
  const Way& way = GetParam();
  const int32_t experts = 4, used = 2;
  const int32_t total = 150;
  // Two slabs of 32 and a part of one, where types allow it.
  const int64_t block = models::InfoOf(way.type).block_values;
  const int64_t inputs = block == 1 ? 72 : block == 256 ? 512 : 96;
  const int64_t outputs = 139;
  std::vector<Matrix> matrices;
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> on_device;
  std::vector<const std::byte*> pointers;
  for (uint64_t e = 0; e < experts; ++e) {
    matrices.emplace_back(way.type, outputs, inputs, e);
    on_device.push_back(
        std::make_unique<DeviceArray<std::byte>>(matrices[e].packed));
    pointers.push_back(on_device[e]->get());
  }
  DeviceArray<const std::byte*> table(pointers);
  const auto x = Random(static_cast<size_t>(total * inputs), 8);
  DeviceArray<float> from(x);
  const int64_t bytes = RoundedBytes(way.input, inputs);
  DeviceArray<std::byte> rounded(
      std::vector<std::byte>(static_cast<size_t>(total * bytes)));
  if (way.input != InputFormat::kF32) {
    ASSERT_EQ(
        RoundRows(nullptr, {.x = from.get(),
                            .pitch = inputs,
                            .rows = total,
                            .rounded = {way.input, static_cast<int32_t>(inputs),
                                        rounded.get(), bytes}}),
        0);
  }
  const bool on_tensors =
      way.input == InputFormat::kF16 || way.input == InputFormat::kBF16;
  const auto multiply = on_tensors                        ? MultiplyOnTensors
                        : way.input == InputFormat::kInt8 ? MultiplyInt8
                                                          : MultiplyRows;
  // Expert 3 has no uses.
  const auto expert_of = [](int32_t row, int32_t k_th) {
    return k_th == 0 ? (row % 3 == 0 ? 0 : 1) : 2 - row % 2;
  };
  std::vector<int32_t> shuffled(static_cast<size_t>(total));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::ranges::shuffle(shuffled, std::mt19937_64(3));
  std::vector<std::vector<float>> all(static_cast<size_t>(total * used));
  for (const int32_t rows : {140, 1, 3, 40}) {
    const std::vector<int32_t> ids(shuffled.end() - rows, shuffled.end());
    std::vector<int32_t> chosen;
    for (const int32_t row : ids) {
      for (int32_t i = 0; i < used; ++i) chosen.push_back(expert_of(row, i));
    }
    const int32_t uses = rows * used;
    const int32_t tile_rows =
        on_tensors ? TensorTileRows(uses, experts) : TileRows(rows);
    if (on_tensors) {
      EXPECT_EQ(tile_rows == kManyTensorRows, rows == 140);
    }
    Ordered ordered(chosen, experts, tile_rows);
    DeviceArray<int32_t> row_ids(ids);
    DeviceArray<float> y(
        std::vector<float>(static_cast<size_t>(uses * outputs), 7.5f));
    ASSERT_EQ(multiply(nullptr, {.weights = matrices[0].On(*on_device[0]),
                                 .x = from.get(),
                                 .pitch = inputs,
                                 .rounded = rounded.get(),
                                 .rounded_bytes = bytes,
                                 .row_ids = row_ids.get(),
                                 .rows = tile_rows,
                                 .y = y.get(),
                                 .out_pitch = outputs,
                                 .tiles = ordered.tiles.get(),
                                 .num_tiles = ordered.num_tiles,
                                 .order = ordered.order.get(),
                                 .matrices = table.get(),
                                 .uses_of_row = used}),
              0);
    const auto got = y.Read();
    for (int32_t use = 0; use < uses; ++use) {
      const int32_t row = ids[static_cast<size_t>(use / used)];
      const Matrix& w =
          matrices[static_cast<size_t>(chosen[static_cast<size_t>(use)])];
      const std::vector<float> own(got.begin() + use * outputs,
                                   got.begin() + (use + 1) * outputs);
      auto& before = all[static_cast<size_t>(row * used + use % used)];
      if (before.empty()) before = own;
      ASSERT_EQ(own, before) << "the tile shows in row " << row;
      for (int64_t o = 0; o < outputs; ++o) {
        double sum = 0, magnitude = 3, lost = 0;
        for (int64_t i = 0; i < inputs; ++i) {
          const double weight = w.values[static_cast<size_t>(o * inputs + i)];
          const double value = x[static_cast<size_t>(row * inputs + i)];
          sum += weight * value;
          magnitude += 4;
          // int8: half a step of a block's greatest, 1 at most.
          lost += way.input == InputFormat::kInt8
                      ? std::fabs(weight) / 254
                      : std::fabs(weight * value) * way.error;
        }
        ASSERT_NEAR(own[static_cast<size_t>(o)], sum,
                    Bound(inputs, magnitude) + lost)
            << "row " << row << " output " << o;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    Ways, ExpertsInEveryWay,
    testing::Values(Way{GgmlType::kQ5_1, InputFormat::kF32, 0},
                    Way{GgmlType::kQ5_1, InputFormat::kInt8, 0},
                    Way{GgmlType::kF16, InputFormat::kF16, 0x1p-11},
                    Way{GgmlType::kBF16, InputFormat::kBF16, 0x1p-8},
                    Way{GgmlType::kQ8_0, InputFormat::kF16, 0x1.01p-10},
                    Way{GgmlType::kQ4_K, InputFormat::kF16, 0x1.01p-10}),
    [](const auto& test) {
      return std::string(models::InfoOf(test.param.type).name) + "_" +
             std::to_string(static_cast<int>(test.param.input));
    });

// What experts read whose weights multiply that: a row for each use.
TEST(Experts, ReadRowsTimesTheirWeights) {
  const int32_t rows = 3, used = 2, width = 140;
  const auto x = Random(rows * width, 1);
  const auto weights = Random(rows * used, 2);
  DeviceArray<float> from(x), on_weights(weights),
      to(std::vector<float>(rows * used * width, NAN));
  ASSERT_EQ(GatherRows(nullptr, {.from = from.get(),
                                 .repeats = used,
                                 .weights = on_weights.get(),
                                 .num_rows = rows * used,
                                 .width = width,
                                 .pitch = width,
                                 .to = to.get()}),
            0);
  const auto got = to.Read();
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t use = i / width;
    EXPECT_EQ(got[i], weights[use] * x[use / used * width + i % width]);
  }
}

TEST(Experts, AreAddedWithTheirWeights) {
  const int32_t rows = 3, used = 2, width = 140;
  const auto y = Random(rows * used * width, 1);
  const auto weights = Random(rows * used, 2);
  const auto shared = Random(rows * width, 3);
  const std::vector<float> logits = {0.5f, 9, -3, 9, 2, 9};
  DeviceArray<float> on_y(y), on_weights(weights), on_shared(shared),
      on_logits(logits);
  const std::vector<int32_t> turned = {2, 1, 0};
  DeviceArray<int32_t> row_ids(turned);
  // No shared expert, weight 1, its logit; the last but one time
  // to rows in reverse, the last time without weights.
  for (const int way : {0, 1, 2, 3, 4}) {
    DeviceArray<float> out(std::vector<float>(rows * width, 0.5f));
    ASSERT_EQ(
        CombineExperts(nullptr,
                       {.row_ids = way == 3 ? row_ids.get() : nullptr,
                        .y = on_y.get(),
                        .pitch = width,
                        .weights = way == 4 ? nullptr : on_weights.get(),
                        .used = used,
                        .shared = way == 0 ? nullptr : on_shared.get(),
                        .shared_pitch = width,
                        .shared_logits = way >= 2 ? on_logits.get() : nullptr,
                        .logits_pitch = 2,
                        .width = width,
                        .rows = rows,
                        .adds = way != 1,
                        .scale = 0.25f,
                        .out = out.get(),
                        .out_pitch = width}),
        0);
    const auto got = out.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = i / width;
      double sum = way == 0 ? 0.0 : double{shared[i]};
      if (way >= 2) sum /= 1 + std::exp(-double{logits[2 * row]});
      const size_t of = way == 3 ? 2 - row : row;  // y
      for (size_t k = 0; k < used; ++k) {
        sum += (way == 4 ? 1 : double{weights[of * used + k]}) *
               y[(of * used + k) * width + i % width];
      }
      EXPECT_NEAR(got[i], way == 1 ? sum : 0.5 + 0.25 * sum, Bound(4, 4));
    }
  }
}

}  // namespace
}  // namespace millrace::cuda
