// Rounding to blocks of 32 values, as the reference quantisers of GGUF do it in
// f32. Q4_0 and Q5_0 give the value of greatest magnitude the number -8 or -16,
// whatever its sign, so the step is negative where that value is positive; and
// the numbers are found with the step before it is rounded to half precision.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/tensor/quant.h"

namespace millrace::models {
namespace {

constexpr int kBlock = 32;

float Inverse(float d) { return d == 0 ? 0.0f : 1.0f / d; }

uint8_t* PutHalf(float value, uint8_t* out) {
  const uint16_t half = FloatToHalf(value);
  std::memcpy(out, &half, sizeof half);
  return out + sizeof half;
}

// Cut to an integer of 0 to `most`; no number becomes 0.
uint8_t Cut(float x, int most) {
  if (!(x > 0)) return 0;
  return static_cast<uint8_t>(std::min(x, static_cast<float>(most)));
}

// Low nibbles, and for 5 bits the high bits in 4 bytes before them.
void PutNumbers(const uint8_t* q, bool five_bits, uint8_t* out) {
  if (five_bits) {
    uint32_t high = 0;
    for (int i = 0; i < kBlock; ++i) {
      high |= static_cast<uint32_t>(q[i] >> 4) << i;
    }
    std::memcpy(out, &high, sizeof high);
    out += sizeof high;
  }
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<uint8_t>((q[i] & 15) | (q[i + kBlock / 2] & 15) << 4);
  }
}

// w = d * (q - zero), q from 0 to 2 * zero - 1.
void AroundZero(const float* x, int zero, uint8_t* out) {
  float greatest = 0;  // by magnitude, the first of equals
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) > std::fabs(greatest)) greatest = x[i];
  }
  const float d = greatest / static_cast<float>(-zero);
  const float inverse = Inverse(d);
  uint8_t q[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    q[i] =
        Cut(x[i] * inverse + (static_cast<float>(zero) + 0.5f), 2 * zero - 1);
  }
  PutNumbers(q, zero == 16, PutHalf(d, out));
}

// w = d * q + m, q from 0 to `most`.
void AboveMinimum(const float* x, int most, uint8_t* out) {
  const auto [least, greatest] = std::minmax_element(x, x + kBlock);
  const float d = (*greatest - *least) / static_cast<float>(most);
  const float inverse = Inverse(d);
  uint8_t q[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    q[i] = Cut((x[i] - *least) * inverse + 0.5f, most);
  }
  PutNumbers(q, most == 31, PutHalf(*least, PutHalf(d, out)));
}

void ToBytes(const float* x, uint8_t* out) {
  float greatest = 0;
  for (int i = 0; i < kBlock; ++i) {
    greatest = std::max(greatest, std::fabs(x[i]));
  }
  const float d = greatest / 127;
  const float inverse = Inverse(d);
  out = PutHalf(d, out);
  for (int i = 0; i < kBlock; ++i) {
    const float q = std::round(x[i] * inverse);  // halves away from zero
    out[i] = static_cast<uint8_t>(static_cast<int8_t>(
        std::isnan(q) ? 0 : std::clamp(q, -127.0f, 127.0f)));
  }
}

}  // namespace

bool QuantizeRow(GgmlType type, const float* row, int64_t k, void* out) {
  auto* at = static_cast<uint8_t*>(out);
  const int64_t bytes = InfoOf(type).block_bytes;
  for (int64_t i = 0; i < k; i += kBlock, at += bytes) {
    switch (type) {
      case GgmlType::kQ8_0:
        ToBytes(row + i, at);
        break;
      case GgmlType::kQ4_0:
        AroundZero(row + i, 8, at);
        break;
      case GgmlType::kQ5_0:
        AroundZero(row + i, 16, at);
        break;
      case GgmlType::kQ4_1:
        AboveMinimum(row + i, 15, at);
        break;
      case GgmlType::kQ5_1:
        AboveMinimum(row + i, 31, at);
        break;
      default:
        return false;
    }
  }
  return true;
}

}  // namespace millrace::models
