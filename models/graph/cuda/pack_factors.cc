#include "models/graph/cuda/pack_factors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "models/tensor/float16.h"

namespace millrace::models::graph {
namespace {

using cuda::GraphPrecision;

int64_t BytesOf(GraphPrecision precision) {
  return precision == GraphPrecision::kTf32 || precision == GraphPrecision::kF32
             ? 4
             : 2;
}

// As the device's cvt.rna.tf32: of two as near the greater one.
uint32_t ToTf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::isnan(value) ? bits : (bits + 0x1000) & ~0x1fffu;
}

// bf16 is the upper half of an f32; of two as near the even one.
uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

int64_t PackedRowBytes(GraphPrecision precision, int64_t inputs) {
  return (inputs * BytesOf(precision) + cuda::kPackedUnit - 1) /
         cuda::kPackedUnit * cuda::kPackedUnit;
}

void RoundFactors(GraphPrecision precision, const float* values, int64_t count,
                  std::byte* to) {
  const auto put = [&](int64_t i, auto rounded) {
    std::memcpy(to + i * static_cast<int64_t>(sizeof rounded), &rounded,
                sizeof rounded);
  };
  for (int64_t i = 0; i < count; ++i) {
    switch (precision) {
      case GraphPrecision::kF32:
        put(i, values[i]);
        break;
      case GraphPrecision::kTf32:
        put(i, ToTf32(values[i]));
        break;
      case GraphPrecision::kF16:
        put(i, FloatToHalf(values[i]));
        break;
      case GraphPrecision::kBf16:
        put(i, ToBf16(values[i]));
        break;
    }
  }
}

std::vector<std::byte> PackFactors(GraphPrecision precision,
                                   const WeightOrder& order,
                                   const float* weights) {
  const int64_t inputs = order.taps * order.channels;
  const int64_t row_bytes = PackedRowBytes(precision, inputs);
  std::vector<std::byte> packed(static_cast<size_t>(order.outputs * row_bytes));
  std::vector<float> row(static_cast<size_t>(inputs));
  const int64_t of_group = std::max<int64_t>(order.outputs / order.groups, 1);
  for (int64_t output = 0; output < order.outputs; ++output) {
    const float* from = weights + output / of_group * order.group_stride +
                        output % of_group * order.output_stride;
    for (int64_t tap = 0; tap < order.taps; ++tap) {
      for (int64_t channel = 0; channel < order.channels; ++channel) {
        row[static_cast<size_t>(tap * order.channels + channel)] =
            from[tap * order.tap_stride + channel * order.channel_stride];
      }
    }
    RoundFactors(precision, row.data(), inputs,
                 packed.data() + output * row_bytes);
  }
  return packed;
}

}  // namespace millrace::models::graph
