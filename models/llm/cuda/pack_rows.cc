#include "models/llm/cuda/pack_rows.h"

#include <cstring>
#include <vector>

#include "config/base/status.h"
#include "models/tensor/float16.h"

namespace millrace::models {
namespace {

using cuda::WeightFormat;

// Bits of a value in the planes, and bytes of all scales of k values.
struct Sizes {
  int low;
  int high;
  int64_t scale_bytes;
};
Sizes SizesOf(WeightFormat format, int64_t k) {
  switch (format) {
    case WeightFormat::kF32:
      return {32, 0, 0};
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return {16, 0, 0};
    case WeightFormat::kQ8_0:
      return {8, 0, k / 32 * 2};
    case WeightFormat::kQ4_0:
      return {4, 0, k / 32 * 2};
    case WeightFormat::kQ4_1:
      return {4, 0, k / 32 * 4};
    case WeightFormat::kQ5_0:
      return {4, 1, k / 32 * 2};
    case WeightFormat::kQ5_1:
      return {4, 1, k / 32 * 4};
    case WeightFormat::kQ4_K:
      return {4, 0, k / 32 * 2 + k / 256 * 4};
    case WeightFormat::kQ5_K:
      return {4, 1, k / 32 * 2 + k / 256 * 4};
    case WeightFormat::kQ6_K:
      break;
  }
  return {4, 2, k / 16 + k / 256 * 2};
}

// Where the planes of a row are.
class Planes {
 public:
  Planes(const Sizes& sizes, int64_t k, std::byte* out)
      : high_bits_(sizes.high),
        low_(reinterpret_cast<uint8_t*>(out)),
        high_(low_ + k * sizes.low / 8),
        scales_(high_ + k * sizes.high / 8) {}

  // A value of four bits and high_bits more, into zeros.
  void Put(int64_t i, int q) {
    low_[i / 2] |= static_cast<uint8_t>((q & 15) << 4 * (i % 2));
    if (high_bits_ == 0) return;
    high_[i * high_bits_ / 8] |=
        static_cast<uint8_t>(q >> 4 << i * high_bits_ % 8);
  }
  uint8_t* low() { return low_; }
  uint8_t* scales() { return scales_; }

 private:
  int high_bits_;
  uint8_t* low_;
  uint8_t* high_;
  uint8_t* scales_;
};

// Value i of 32 nibbles: the low halves of 16 bytes, then the high ones.
int Nibble(const uint8_t* p, int i) {
  return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}
// Of a K type's 64 values in 32 bytes.
int KNibble(const uint8_t* p, int i) {
  return p[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15;
}
int OneBit(const uint8_t* p, int i) { return p[i / 8] >> i % 8 & 1; }

// Blocks of 32: [f16 d][f16 m, or none][32 bits, or none][16 bytes].
void PackBlocks32(const uint8_t* p, int64_t k, bool has_min, bool has_high,
                  Planes& planes) {
  const int scales = has_min ? 4 : 2;
  const int quants = scales + (has_high ? 4 : 0);
  for (int64_t block = 0; block < k / 32; ++block, p += quants + 16) {
    std::memcpy(planes.scales() + scales * block, p,
                static_cast<size_t>(scales));
    for (int i = 0; i < 32; ++i) {
      const int high = has_high ? OneBit(p + scales, i) << 4 : 0;
      planes.Put(32 * block + i, Nibble(p + quants, i) | high);
    }
  }
}

void PackQ8_0(const uint8_t* p, int64_t k, Planes& planes) {
  for (int64_t block = 0; block < k / 32; ++block, p += 34) {
    std::memcpy(planes.scales() + 2 * block, p, 2);
    std::memcpy(planes.low() + 32 * block, p + 2, 32);
  }
}

// [d][dmin][12 bytes][32 bytes of a fifth bit, or none][128 bytes]; how scales
// and minima share the 12 bytes: see ScaleAndMin of
// models/tensor/dequantize.cc.
void PackKWithMin(const uint8_t* p, int64_t k, bool has_high, Planes& planes) {
  uint8_t* const outer = planes.scales() + k / 32 * 2;
  const int quants = has_high ? 48 : 16;
  for (int64_t block = 0; block < k / 256; ++block, p += quants + 128) {
    std::memcpy(outer + 4 * block, p, 4);
    const uint8_t* s = p + 4;
    for (int part = 0; part < 8; ++part) {
      uint8_t* const to = planes.scales() + 2 * (8 * block + part);
      if (part < 4) {
        to[0] = s[part] & 63;
        to[1] = s[part + 4] & 63;
      } else {
        to[0] =
            static_cast<uint8_t>((s[part + 4] & 15) | s[part - 4] >> 6 << 4);
        to[1] = static_cast<uint8_t>(s[part + 4] >> 4 | s[part] >> 6 << 4);
      }
    }
    for (int i = 0; i < 256; ++i) {
      const int high = has_high ? (p[16 + i % 32] >> i / 32 & 1) << 4 : 0;
      planes.Put(256 * block + i, KNibble(p + quants, i) | high);
    }
  }
}

// [128 bytes of 4 bits][64 bytes of 2 bits][16 int8 scales][d].
void PackQ6_K(const uint8_t* p, int64_t k, Planes& planes) {
  uint8_t* const outer = planes.scales() + k / 16;
  for (int64_t block = 0; block < k / 256; ++block, p += 210) {
    std::memcpy(planes.scales() + 16 * block, p + 192, 16);
    std::memcpy(outer + 2 * block, p + 208, 2);
    for (int i = 0; i < 256; ++i) {
      const int low = p[64 * (i / 128) + i % 64] >> 4 * (i / 64 % 2) & 15;
      const int high = p[128 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3;
      planes.Put(256 * block + i, low | high << 4);
    }
  }
}

}  // namespace

WeightFormat CudaFormatOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return WeightFormat::kF32;
    case GgmlType::kBF16:
      return WeightFormat::kBF16;
    case GgmlType::kQ8_0:
      return WeightFormat::kQ8_0;
    case GgmlType::kQ4_0:
      return WeightFormat::kQ4_0;
    case GgmlType::kQ4_1:
      return WeightFormat::kQ4_1;
    case GgmlType::kQ5_0:
      return WeightFormat::kQ5_0;
    case GgmlType::kQ5_1:
      return WeightFormat::kQ5_1;
    case GgmlType::kQ4_K:
      return WeightFormat::kQ4_K;
    case GgmlType::kQ5_K:
      return WeightFormat::kQ5_K;
    case GgmlType::kQ6_K:
      return WeightFormat::kQ6_K;
    default:
      return WeightFormat::kF16;
  }
}

int64_t CudaInputs(int64_t k) { return (k + 7) / 8 * 8; }

int64_t CudaRowBytes(WeightFormat format, int64_t k) {
  const int64_t inputs = CudaInputs(k);
  const Sizes sizes = SizesOf(format, inputs);
  const int64_t bytes =
      inputs * (sizes.low + sizes.high) / 8 + sizes.scale_bytes;
  return (bytes + 15) / 16 * 16;
}

void PackCudaRow(GgmlType type, const std::byte* row, int64_t k,
                 std::byte* out) {
  const WeightFormat format = CudaFormatOf(type);
  Planes planes(SizesOf(format, k), k, out);
  const auto* p = reinterpret_cast<const uint8_t*>(row);
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(out, row, static_cast<size_t>(4 * k));
      return;
    case WeightFormat::kBF16:
      std::memcpy(out, row, static_cast<size_t>(2 * k));
      return;
    case WeightFormat::kF16:
      break;
    case WeightFormat::kQ8_0:
      return PackQ8_0(p, k, planes);
    case WeightFormat::kQ4_0:
      return PackBlocks32(p, k, false, false, planes);
    case WeightFormat::kQ4_1:
      return PackBlocks32(p, k, true, false, planes);
    case WeightFormat::kQ5_0:
      return PackBlocks32(p, k, false, true, planes);
    case WeightFormat::kQ5_1:
      return PackBlocks32(p, k, true, true, planes);
    case WeightFormat::kQ4_K:
      return PackKWithMin(p, k, false, planes);
    case WeightFormat::kQ5_K:
      return PackKWithMin(p, k, true, planes);
    case WeightFormat::kQ6_K:
      return PackQ6_K(p, k, planes);
  }
  if (type == GgmlType::kF16) {
    std::memcpy(out, row, static_cast<size_t>(2 * k));
    return;
  }
  std::vector<float> values(static_cast<size_t>(k));
  CHECK(DequantizeRow(type, row, k, values.data()),
        "weights have a served type");
  for (int64_t i = 0; i < k; ++i) {
    const uint16_t half = FloatToHalf(values[static_cast<size_t>(i)]);
    std::memcpy(out + 2 * i, &half, sizeof half);
  }
}

}  // namespace millrace::models
