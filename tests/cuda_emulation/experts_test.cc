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
Routed Route(const std::vector<float>& logits, int32_t rows, int32_t experts,
             int32_t used, bool normalise, bool sigmoid = false) {
  DeviceArray<float> on_device(logits);
  DeviceArray<int32_t> chosen(
      std::vector<int32_t>(static_cast<size_t>(rows * used), -7));
  DeviceArray<float> weights(
      std::vector<float>(static_cast<size_t>(rows * used)));
  EXPECT_EQ(
      RouteRows(nullptr, {.logits = on_device.get(),
                          .pitch = static_cast<int64_t>(logits.size()) / rows,
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
          const double want = std::exp(double{own[expert]} - most) / sum;
          EXPECT_NEAR(got.weights[at], want, Bound(experts, 4 * want));
        }
      }
    }
  }
}

TEST(Routing, WeightsMayBeTheSigmoidOfLogits) {
  const Routed got =
      Route({3, -1, 40, 2, -90, -80, -85, -100}, 2, 4, 2, false, true);
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

// Two matrices' worth of everything: uses in order, tiles, products.
TEST(Experts, MultiplyTheirOwnUsesAndGiveTheSameBitsInAnyTile) {
  const int32_t experts = 5, used = 2;
  const int64_t k = 64, outputs = 19;
  for (const bool int8 : {false, true}) {
    std::vector<Matrix> matrices;
    std::vector<std::unique_ptr<DeviceArray<std::byte>>> on_device;
    std::vector<const std::byte*> pointers;
    for (uint64_t e = 0; e < experts; ++e) {
      matrices.emplace_back(GgmlType::kQ5_1, outputs, k, e);
      on_device.push_back(
          std::make_unique<DeviceArray<std::byte>>(matrices[e].packed));
      pointers.push_back(on_device[e]->get());
    }
    DeviceArray<const std::byte*> table(pointers);
    std::vector<float> all;
    for (const int32_t rows : {40, 1, 3}) {
      const int32_t uses = rows * used;
      // Expert 3 has none, expert 1 the most.
      std::vector<int32_t> chosen;
      for (int32_t row = 0; row < rows; ++row) {
        chosen.push_back(row % 3 == 0 ? 0 : 1);
        chosen.push_back(row % 2 == 0 ? 2 : 4);
      }
      const int32_t tile_rows = rows == 1 ? 1 : rows <= 4 ? 4 : 8;
      const int32_t num_tiles = MostTiles(uses, experts, tile_rows);
      DeviceArray<int32_t> on_chosen(chosen);
      DeviceArray<int32_t> order(
          std::vector<int32_t>(static_cast<size_t>(uses), -1));
      DeviceArray<ExpertTile> tiles(
          std::vector<ExpertTile>(static_cast<size_t>(num_tiles), {9, 9, 9}));
      ASSERT_EQ(OrderUses(nullptr, {.chosen = on_chosen.get(),
                                    .uses = uses,
                                    .experts = experts,
                                    .tile_rows = tile_rows,
                                    .order = order.get(),
                                    .tiles = tiles.get(),
                                    .num_tiles = num_tiles}),
                0);
      std::vector<int32_t> want(static_cast<size_t>(uses));
      std::iota(want.begin(), want.end(), 0);
      std::ranges::stable_sort(want, [&](int32_t a, int32_t b) {
        return chosen[static_cast<size_t>(a)] < chosen[static_cast<size_t>(b)];
      });
      EXPECT_EQ(order.Read(), want);

      const auto x = Random(static_cast<size_t>(rows * k), 8);
      DeviceArray<float> from(x);
      const int64_t bytes = RoundedBytes(InputFormat::kInt8, k);
      DeviceArray<std::byte> rounded(
          std::vector<std::byte>(static_cast<size_t>(rows * bytes)));
      ASSERT_EQ(RoundRows(nullptr, {.x = from.get(),
                                    .pitch = k,
                                    .rows = rows,
                                    .rounded = {InputFormat::kInt8,
                                                static_cast<int32_t>(k),
                                                rounded.get(), bytes}}),
                0);
      DeviceArray<float> y(
          std::vector<float>(static_cast<size_t>(uses * outputs), 7.5f));
      const LinearArgs args = {.weights = matrices[0].On(*on_device[0]),
                               .x = from.get(),
                               .pitch = k,
                               .rounded = rounded.get(),
                               .rounded_bytes = bytes,
                               .rows = tile_rows,
                               .y = y.get(),
                               .out_pitch = outputs,
                               .tiles = tiles.get(),
                               .num_tiles = num_tiles,
                               .order = order.get(),
                               .matrices = table.get(),
                               .uses_of_row = used};
      ASSERT_EQ((int8 ? MultiplyInt8 : MultiplyRows)(nullptr, args), 0);
      const auto got = y.Read();
      if (all.empty()) all = got;
      for (int32_t use = 0; use < uses; ++use) {
        const Matrix& w =
            matrices[static_cast<size_t>(chosen[static_cast<size_t>(use)])];
        for (int64_t o = 0; o < outputs; ++o) {
          double sum = 0, magnitude = 3, lost = 0;
          for (int64_t i = 0; i < k; ++i) {
            const double weight = w.values[static_cast<size_t>(o * k + i)];
            sum += weight * x[static_cast<size_t>(use / used * k + i)];
            magnitude += 4;
            // int8: half a step of a block's greatest, 1 at most.
            lost += int8 ? std::fabs(weight) / 254 : 0;
          }
          const auto at = static_cast<size_t>(use * outputs + o);
          ASSERT_NEAR(got[at], sum, Bound(k, magnitude) + lost);
          ASSERT_EQ(got[at], all[at]) << "the tile shows";
        }
      }
    }
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
  // No shared expert, weight 1, its logit; without weights.
  for (const int way : {0, 1, 2, 3}) {
    DeviceArray<float> out(std::vector<float>(rows * width, 0.5f));
    ASSERT_EQ(
        CombineExperts(nullptr,
                       {.y = on_y.get(),
                        .pitch = width,
                        .weights = way == 3 ? nullptr : on_weights.get(),
                        .used = used,
                        .shared = way == 0 ? nullptr : on_shared.get(),
                        .shared_pitch = width,
                        .shared_logits = way == 2 ? on_logits.get() : nullptr,
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
      if (way == 2) sum /= 1 + std::exp(-double{logits[2 * row]});
      for (size_t k = 0; k < used; ++k) {
        sum += (way == 3 ? 1 : double{weights[row * used + k]}) *
               y[(row * used + k) * width + i % width];
      }
      EXPECT_NEAR(got[i], way == 1 ? sum : 0.5 + 0.25 * sum, Bound(4, 4));
    }
  }
}

}  // namespace
}  // namespace millrace::cuda
