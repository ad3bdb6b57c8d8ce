// The kernels of LoRA adapters beside loops in double precision: several
// adapters of several ranks in a launch, splits that blocks share or walk.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "models/cuda/lora_kernels.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/kernel_inputs.h"

namespace millrace::cuda {
namespace {

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// One matrix's factors, as given and on the device. Values are f16.
struct Pair {
  int32_t rank;
  int64_t inputs;
  int64_t outputs;
  std::vector<float> a;  // [rank][inputs]
  std::vector<float> b;  // [outputs][rank]
  float scale;
  std::unique_ptr<DeviceArray<std::byte>> on_a, on_b;

  Pair(int32_t r, int64_t num_inputs, int64_t num_outputs, bool f32,
       uint64_t seed)
      : rank(r),
        inputs(num_inputs),
        outputs(num_outputs),
        a(Halves(static_cast<size_t>(r * num_inputs), seed)),
        b(Halves(static_cast<size_t>(r * num_outputs), seed + 1)),
        scale(seed % 2 == 0 ? 0.5f : 2.0f) {
    std::vector<float> of_a(
        static_cast<size_t>(RoundUp(r, 4) * RoundUp(inputs, 8)));
    std::vector<float> of_b(static_cast<size_t>(r * RoundUp(outputs, 8)));
    for (int64_t k = 0; k < r; ++k) {
      for (int64_t i = 0; i < inputs; ++i) {
        of_a[static_cast<size_t>(k * RoundUp(inputs, 8) + i)] =
            a[static_cast<size_t>(k * inputs + i)];
      }
      for (int64_t i = 0; i < outputs; ++i) {
        of_b[static_cast<size_t>(k * RoundUp(outputs, 8) + i)] =
            b[static_cast<size_t>(i * r + k)];
      }
    }
    on_a = std::make_unique<DeviceArray<std::byte>>(Bytes(of_a, f32));
    on_b = std::make_unique<DeviceArray<std::byte>>(Bytes(of_b, f32));
  }

  static std::vector<float> Halves(size_t n, uint64_t seed) {
    std::vector<float> values = Random(n, seed);
    for (float& x : values) x = models::HalfToFloat(models::FloatToHalf(x));
    return values;
  }
  static std::vector<std::byte> Bytes(const std::vector<float>& values,
                                      bool f32) {
    std::vector<std::byte> bytes(values.size() * (f32 ? 4 : 2));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = models::FloatToHalf(values[i]);
      if (f32) {
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
      } else {
        std::memcpy(bytes.data() + 2 * i, &half, 2);
      }
    }
    return bytes;
  }
  LoraFactors Factors() { return {on_a->get(), on_b->get(), rank, scale}; }
};

// Adapters that change some of `outputs.size()` matrices, behind one matrix
// that another phase multiplies.
class Adapters {
 public:
  Adapters(int64_t inputs, const std::vector<int32_t>& outputs,
           const std::vector<std::vector<int32_t>>& ranks, bool f32)
      : inputs_(inputs), outputs_(outputs), f32_(f32) {
    uint64_t seed = 10;
    for (const auto& of_adapter : ranks) {
      std::vector<LoraFactors> table(1);  // not read
      auto& pairs = pairs_.emplace_back();
      for (size_t t = 0; t < outputs.size(); ++t) {
        pairs.push_back(nullptr);
        table.emplace_back();
        if (of_adapter[t] == 0) continue;
        pairs.back() = std::make_unique<Pair>(of_adapter[t], inputs, outputs[t],
                                              f32, seed += 3);
        table.back() = pairs.back()->Factors();
        most_rank_ = std::max(most_rank_, of_adapter[t]);
      }
      tables_.push_back(std::make_unique<DeviceArray<LoraFactors>>(table));
    }
    most_rank_ = static_cast<int32_t>(RoundUp(most_rank_, kLoraRanks));
  }

  int32_t most_rank() const { return most_rank_; }
  const Pair* pair(int32_t adapter, size_t target) const {
    return pairs_[static_cast<size_t>(adapter)][target].get();
  }

  // y of all rows; `adapter_of_row`: below 0: none. `padding`: more tiles,
  // which are nothing.
  std::vector<float> Add(const std::vector<float>& x, std::vector<float> y,
                         const std::vector<int32_t>& adapter_of_row,
                         bool shares_splits, int32_t padding) {
    const auto rows = static_cast<int64_t>(adapter_of_row.size());
    std::vector<LoraTile> tiles;
    std::vector<int32_t> order;
    for (size_t a = 0; a < tables_.size(); ++a) {
      for (size_t row = 0; row < adapter_of_row.size(); ++row) {
        if (adapter_of_row[row] != static_cast<int32_t>(a)) continue;
        const auto place = static_cast<int32_t>(order.size());
        order.push_back(static_cast<int32_t>(row));
        if (tiles.empty() || tiles.back().adapter != tables_[a]->get() ||
            tiles.back().count == kLoraTileRows) {
          tiles.push_back({tables_[a]->get(), place, 0});
        }
        ++tiles.back().count;
      }
    }
    for (int32_t i = 0; i < padding; ++i) tiles.push_back({nullptr, 0, 0});
    const int64_t pitch = static_cast<int64_t>(y.size()) / rows;
    const auto splits =
        static_cast<size_t>(shares_splits ? LoraSplits(inputs_) : 1);
    DeviceArray<LoraTile> on_tiles(tiles);
    DeviceArray<int32_t> on_order(order);
    DeviceArray<float> on_x(Padded(x, inputs_, RoundUp(inputs_, 8)));
    DeviceArray<float> on_y(y);
    DeviceArray<float> hidden(
        std::vector<float>(order.size() * outputs_.size() * splits *
                               static_cast<size_t>(most_rank_),
                           std::nanf("")));
    LoraArgs args = {.tiles = on_tiles.get(),
                     .num_tiles = static_cast<int32_t>(tiles.size()),
                     .order = on_order.get(),
                     .first_matrix = 1,
                     .num_targets = static_cast<int32_t>(outputs_.size()),
                     .f32 = f32_,
                     .most_rank = most_rank_,
                     .inputs = static_cast<int32_t>(RoundUp(inputs_, 8)),
                     .x = on_x.get(),
                     .pitch = RoundUp(inputs_, 8),
                     .shares_splits = shares_splits,
                     .hidden = hidden.get(),
                     .scale = 0.75f,
                     .y = on_y.get(),
                     .out_pitch = pitch};
    int32_t first = 0;
    for (size_t t = 0; t < outputs_.size(); ++t) {
      args.targets[t] = {first, outputs_[t]};
      first += outputs_[t];
    }
    EXPECT_EQ(AddLora(nullptr, args), 0);
    return on_y.Read();
  }

 private:
  const int64_t inputs_;
  const std::vector<int32_t> outputs_;
  const bool f32_;
  int32_t most_rank_ = 0;
  std::vector<std::vector<std::unique_ptr<Pair>>> pairs_;
  std::vector<std::unique_ptr<DeviceArray<LoraFactors>>> tables_;
};

struct LoraCase {
  int64_t inputs;
  std::vector<int32_t> outputs;
  std::vector<std::vector<int32_t>> ranks;  // [adapter][target]
  std::vector<int32_t> adapter_of_row;
};

// Ranks that end within a warp's four, a block's 16 and behind 16; a matrix
// that an adapter leaves; outputs that begin at no multiple of four; widths
// that end within a unit and behind a split; nine rows of one adapter.
std::vector<LoraCase> Cases() {
  return {
      {40, {24, 8, 8}, {{4, 0, 5}}, {-1, 0, -1, -1, 0}},
      {64, {50, 51}, {{16, 16}, {3, 0}}, {1, 0, 0, 1, -1, 0, 0, 0, 0, 0, 0, 0}},
      {1024 + 72, {600}, {{17}, {1}}, {0, 1, 0}},
      {2 * 1024, {13}, {{8}, {256}}, {1, 0}},
      {52, {37}, {{2}}, {0}},
  };
}

TEST(Lora, AddsWhatAdaptersAddAndTheSameBitsInAnyBatch) {
  for (const LoraCase& c : Cases()) {
    for (const bool f32 : {false, true}) {
      Adapters adapters(c.inputs, c.outputs, c.ranks, f32);
      const size_t rows = c.adapter_of_row.size();
      const auto inputs = static_cast<size_t>(c.inputs);
      const std::vector<float> x = Random(rows * inputs, 3);
      int32_t width = 0;
      for (const int32_t outputs : c.outputs) width += outputs;
      const auto pitch = static_cast<size_t>(RoundUp(width + 1, 8));
      const std::vector<float> y = Random(rows * pitch, 4);
      const auto got = adapters.Add(x, y, c.adapter_of_row, false, 0);

      for (size_t row = 0; row < rows; ++row) {
        const int32_t adapter = c.adapter_of_row[row];
        size_t at = row * pitch;
        for (size_t t = 0; t < c.outputs.size(); ++t) {
          const Pair* pair = adapter < 0 ? nullptr : adapters.pair(adapter, t);
          for (int32_t o = 0; o < c.outputs[t]; ++o, ++at) {
            if (pair == nullptr) {
              ASSERT_EQ(got[at], y[at]) << "row " << row;
              continue;
            }
            double sum = 0, magnitude = 0;
            const auto rank = static_cast<size_t>(pair->rank);
            for (size_t k = 0; k < rank; ++k) {
              double h = 0, size = 0;
              for (size_t i = 0; i < inputs; ++i) {
                const double term =
                    double{pair->a[k * inputs + i]} * x[row * inputs + i];
                h += term;
                size += std::fabs(term);
              }
              const double b = pair->b[static_cast<size_t>(o) * rank + k];
              sum += b * h;
              magnitude += std::fabs(b) * size;
            }
            const double factor = 0.75 * double{pair->scale};
            // Each of the two sums is off by its length.
            ASSERT_NEAR(got[at], y[at] + factor * sum,
                        Bound(c.inputs + pair->rank,
                              factor * magnitude + std::fabs(y[at])))
                << "row " << row << " output " << o;
          }
        }
        for (; at < (row + 1) * pitch; ++at) {
          ASSERT_EQ(got[at], y[at]) << "behind the row";
        }
      }

      EXPECT_EQ(adapters.Add(x, y, c.adapter_of_row, true, 3), got)
          << "who adds the splits shows";
      // Each row alone.
      for (size_t row = 0; row < rows; ++row) {
        if (c.adapter_of_row[row] < 0) continue;
        const auto part = [&](const std::vector<float>& all, size_t n) {
          return std::vector<float>(
              all.begin() + static_cast<std::ptrdiff_t>(row * n),
              all.begin() + static_cast<std::ptrdiff_t>((row + 1) * n));
        };
        ASSERT_EQ(adapters.Add(part(x, inputs), part(y, pitch),
                               {c.adapter_of_row[row]}, row % 2 == 0, 0),
                  part(got, pitch))
            << "its batch shows in row " << row;
      }
    }
  }
}

TEST(Lora, RefusesWhatNoKernelTakes) {
  const LoraTile* const tiles = nullptr;
  const LoraArgs good = {
      .tiles = tiles, .num_targets = 1, .most_rank = 16, .inputs = 8};
  EXPECT_EQ(AddLora(nullptr, good), 0) << "no row has an adapter";
  LoraArgs bad = good;
  bad.num_tiles = 1;
  bad.most_rank = 272;
  EXPECT_NE(AddLora(nullptr, bad), 0);
  bad.most_rank = 17;
  EXPECT_NE(AddLora(nullptr, bad), 0);
  bad = good;
  bad.num_tiles = 1;
  bad.inputs = 9;
  EXPECT_NE(AddLora(nullptr, bad), 0);
}

}  // namespace
}  // namespace millrace::cuda
