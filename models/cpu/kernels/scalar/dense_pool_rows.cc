// Embedding bags, one value at a time.

#include "models/cpu/kernels/dense/pool_rows.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {
namespace {

struct RowLane {
  using V = Vec1;

  static float Fma(float a, float b, float c) { return models::Fma(a, b, c); }

  template <TableRows kType>
  static float Load(const std::byte* at) {
    if constexpr (kType == TableRows::kInt8) {
      return static_cast<float>(static_cast<uint8_t>(*at));
    } else if constexpr (kType == TableRows::kF32) {
      float x;
      __builtin_memcpy(&x, at, sizeof x);
      return x;
    } else {
      uint16_t bits;
      __builtin_memcpy(&bits, at, sizeof bits);
      return kType == TableRows::kF16 ? FloatOfHalf(bits) : FloatOfBf16(bits);
    }
  }
};

}  // namespace

void PoolRowsScalar(const PoolRowsArgs& args) {
  RowPooling<RowLane>::Run(args);
}

}  // namespace millrace::models
