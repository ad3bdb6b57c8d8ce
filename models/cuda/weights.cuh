// Eight values of a row of weights as f32. A lane takes eight at a time: of
// 4 bits these are one 32-bit word, and a warp's 256 are one block of a K type.
#pragma once

#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {

// Number of a format's bits a value in the low and the high plane, what is
// taken from them, and how they are scaled.
template <WeightFormat kFormat>
struct Planes;
#define MILLRACE_PLANES(format, low, high, zero, group, has_min, nested) \
  template <>                                                            \
  struct Planes<WeightFormat::format> {                                  \
    static constexpr int kLow = low;                                     \
    static constexpr int kHigh = high;                                   \
    static constexpr int kZero = zero;                                   \
    static constexpr int kGroup = group;                                 \
    static constexpr bool kHasMin = has_min;                             \
    static constexpr bool kNested = nested;                              \
  }
MILLRACE_PLANES(kQ8_0, 8, 0, 0, 32, false, false);
MILLRACE_PLANES(kQ4_0, 4, 0, 8, 32, false, false);
MILLRACE_PLANES(kQ4_1, 4, 0, 0, 32, true, false);
MILLRACE_PLANES(kQ5_0, 4, 1, 16, 32, false, false);
MILLRACE_PLANES(kQ5_1, 4, 1, 0, 32, true, false);
MILLRACE_PLANES(kQ4_K, 4, 0, 0, 32, true, true);
MILLRACE_PLANES(kQ5_K, 4, 1, 0, 32, true, true);
MILLRACE_PLANES(kQ6_K, 4, 2, 32, 16, false, true);
#undef MILLRACE_PLANES

template <typename T>
__device__ __forceinline__ T LoadAs(const std::byte* at) {
  return *reinterpret_cast<const T*>(at);
}

// w = scale * q - kZero * scale, or + min.
struct Affine {
  float scale;
  float offset;
};

// The bits of a unit of eight values, as they are in memory: loading is apart
// from computing, so that loads may be under way while others are computed.
template <WeightFormat kFormat>
struct RawUnit {
  static constexpr int kWords = kFormat == WeightFormat::kF32    ? 8
                                : kFormat == WeightFormat::kF16  ? 4
                                : kFormat == WeightFormat::kBF16 ? 4
                                : kFormat == WeightFormat::kQ8_0 ? 2
                                                                 : 1;
  uint32_t low[kWords];
  uint32_t high;
  uint32_t inner, outer;  // scales
};

template <WeightFormat kFormat>
__device__ __forceinline__ void FetchScale(const std::byte* scales, int inputs,
                                           int unit, uint32_t& inner,
                                           uint32_t& outer) {
  using P = Planes<kFormat>;
  const int group = unit / (P::kGroup / 8);
  if constexpr (P::kNested && P::kHasMin) {
    inner = LoadAs<uint16_t>(scales + 2 * group);
    outer =
        LoadAs<uint32_t>(scales + 2 * (inputs / P::kGroup) + 4 * (unit / 32));
  } else if constexpr (P::kNested) {
    inner = LoadAs<uint8_t>(scales + group);
    outer = LoadAs<uint16_t>(scales + inputs / P::kGroup + 2 * (unit / 32));
  } else if constexpr (P::kHasMin) {
    inner = LoadAs<uint32_t>(scales + 4 * group);
  } else {
    inner = LoadAs<uint16_t>(scales + 2 * group);
  }
}

template <WeightFormat kFormat>
__device__ __forceinline__ Affine ScaleOf(uint32_t inner, uint32_t outer) {
  using P = Planes<kFormat>;
  const auto half = [](uint32_t bits) {
    return FromHalf(static_cast<uint16_t>(bits & 0xffff));
  };
  if constexpr (P::kNested && P::kHasMin) {
    return {half(outer) * static_cast<float>(inner & 0xff),
            -half(outer >> 16) * static_cast<float>(inner >> 8)};
  } else if constexpr (P::kNested) {
    const float d = half(outer);
    const auto s = static_cast<float>(static_cast<int8_t>(inner));
    return {d * s, -static_cast<float>(P::kZero) * d * s};
  } else if constexpr (P::kHasMin) {
    return {half(inner), half(inner >> 16)};
  } else {
    const float d = half(inner);
    return {d, -static_cast<float>(P::kZero) * d};
  }
}

// Values [8 unit, 8 unit + 8) of the row at `row`.
template <WeightFormat kFormat>
__device__ __forceinline__ RawUnit<kFormat> FetchUnit(const std::byte* row,
                                                      int inputs, int unit) {
  RawUnit<kFormat> raw;
  if constexpr (kFormat == WeightFormat::kF32) {
    const auto* at = reinterpret_cast<const uint4*>(row) + 2 * unit;
    const uint4 a = at[0], b = at[1];
    raw.low[0] = a.x, raw.low[1] = a.y, raw.low[2] = a.z, raw.low[3] = a.w;
    raw.low[4] = b.x, raw.low[5] = b.y, raw.low[6] = b.z, raw.low[7] = b.w;
  } else if constexpr (kFormat == WeightFormat::kF16 ||
                       kFormat == WeightFormat::kBF16) {
    const uint4 a = reinterpret_cast<const uint4*>(row)[unit];
    raw.low[0] = a.x, raw.low[1] = a.y, raw.low[2] = a.z, raw.low[3] = a.w;
  } else {
    using P = Planes<kFormat>;
    const int64_t high_at = int64_t{inputs} * P::kLow / 8;
    const int64_t scales_at = high_at + int64_t{inputs} * P::kHigh / 8;
    FetchScale<kFormat>(row + scales_at, inputs, unit, raw.inner, raw.outer);
    if constexpr (P::kLow == 8) {
      const uint2 q = LoadAs<uint2>(row + 8 * int64_t{unit});
      raw.low[0] = q.x, raw.low[1] = q.y;
    } else {
      raw.low[0] = LoadAs<uint32_t>(row + 4 * int64_t{unit});
      if constexpr (P::kHigh == 1) {
        raw.high = LoadAs<uint8_t>(row + high_at + unit);
      }
      if constexpr (P::kHigh == 2) {
        raw.high = LoadAs<uint16_t>(row + high_at + 2 * int64_t{unit});
      }
    }
  }
  return raw;
}

template <WeightFormat kFormat>
__device__ __forceinline__ void DecodeUnit(const RawUnit<kFormat>& raw,
                                           float w[8]) {
  if constexpr (kFormat == WeightFormat::kF32) {
    for (int i = 0; i < 8; ++i) w[i] = FloatOfBits(raw.low[i]);
  } else if constexpr (kFormat == WeightFormat::kF16 ||
                       kFormat == WeightFormat::kBF16) {
    for (int i = 0; i < 8; ++i) {
      const auto bits = static_cast<uint16_t>(raw.low[i / 2] >> 16 * (i % 2));
      w[i] = kFormat == WeightFormat::kF16 ? FromHalf(bits) : FromBf16(bits);
    }
  } else {
    using P = Planes<kFormat>;
    const Affine affine = ScaleOf<kFormat>(raw.inner, raw.outer);
    if constexpr (P::kLow == 8) {
      for (int i = 0; i < 8; ++i) {
        const auto value = static_cast<int8_t>(raw.low[i / 4] >> 8 * (i % 4));
        w[i] = affine.scale * static_cast<float>(value);
      }
    } else {
      uint32_t high = 0;
      if constexpr (P::kHigh > 0) high = raw.high;
      constexpr uint32_t kHighMask = (1u << P::kHigh) - 1;
      for (int i = 0; i < 8; ++i) {
        const uint32_t q = (raw.low[0] >> 4 * i & 15) |
                           (high >> P::kHigh * i & kHighMask) << 4;
        w[i] = fmaf(affine.scale, static_cast<float>(q), affine.offset);
      }
    }
  }
}

template <WeightFormat kFormat>
__device__ __forceinline__ void LoadUnit(const std::byte* row, int inputs,
                                         int unit, float w[8]) {
  DecodeUnit<kFormat>(FetchUnit<kFormat>(row, inputs, unit), w);
}

// Calls body.operator()<format>() for the format.
template <typename Body>
auto WithFormat(WeightFormat format, Body body) {
  switch (format) {
    case WeightFormat::kF32:
      return body.template operator()<WeightFormat::kF32>();
    case WeightFormat::kF16:
      return body.template operator()<WeightFormat::kF16>();
    case WeightFormat::kBF16:
      return body.template operator()<WeightFormat::kBF16>();
    case WeightFormat::kQ8_0:
      return body.template operator()<WeightFormat::kQ8_0>();
    case WeightFormat::kQ4_0:
      return body.template operator()<WeightFormat::kQ4_0>();
    case WeightFormat::kQ4_1:
      return body.template operator()<WeightFormat::kQ4_1>();
    case WeightFormat::kQ5_0:
      return body.template operator()<WeightFormat::kQ5_0>();
    case WeightFormat::kQ5_1:
      return body.template operator()<WeightFormat::kQ5_1>();
    case WeightFormat::kQ4_K:
      return body.template operator()<WeightFormat::kQ4_K>();
    case WeightFormat::kQ5_K:
      return body.template operator()<WeightFormat::kQ5_K>();
    case WeightFormat::kQ6_K:
      break;
  }
  return body.template operator()<WeightFormat::kQ6_K>();
}

}  // namespace millrace::cuda
