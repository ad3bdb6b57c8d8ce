// Inputs of kernels in tests, and how far off their results may be: an f32 sum
// of n products is off by at most (n + 1) * 2^-24 times the sum of their
// magnitudes (Higham 2002, 3.1); exp, tanh, sin and cos add a few ulp (2^-24
// each) of their own. `Bound` takes 8 more for those.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "models/llm/cuda/pack_rows.h"
#include "models/tensor/float16.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/data/tiny_gguf.h"

namespace millrace::cuda {

using models::GgmlType;

inline double Bound(int64_t n, double magnitude) {
  return static_cast<double>(n + 8) * 0x1p-24 * magnitude + 1e-30;
}

inline std::vector<float> Random(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random);
  return values;
}

// A matrix as the file has it, as the kernels read it, and what it is worth.
struct Matrix {
  std::vector<float> values;  // [rows][k]
  std::vector<std::byte> packed;
  int64_t row_bytes = 0;
  int64_t rows;
  int64_t k;
  WeightFormat format;

  Matrix(GgmlType type, int64_t num_rows, int64_t num_inputs, uint64_t seed)
      : rows(num_rows), k(num_inputs), format(models::CudaFormatOf(type)) {
    const auto random = Random(static_cast<size_t>(rows * k), seed);
    const std::string bytes = models::QuantizeRows(type, random, k);
    EXPECT_FALSE(bytes.empty());
    const auto file_row = static_cast<int64_t>(bytes.size()) / rows;
    row_bytes = models::CudaRowBytes(format, k);
    packed.resize(static_cast<size_t>(rows * row_bytes));
    values.resize(random.size());
    for (int64_t i = 0; i < rows; ++i) {
      const auto* row =
          reinterpret_cast<const std::byte*>(bytes.data()) + i * file_row;
      EXPECT_TRUE(models::DequantizeRow(type, row, k, values.data() + i * k));
      models::PackCudaRow(type, row, k, packed.data() + i * row_bytes);
    }
    if (format != WeightFormat::kF16) return;
    for (float& value : values) {
      value = models::HalfToFloat(models::FloatToHalf(value));
    }
  }
  Weights On(DeviceArray<std::byte>& device) const {
    return {.data = device.get(),
            .row_bytes = row_bytes,
            .inputs = static_cast<int32_t>(models::CudaInputs(k)),
            .outputs = static_cast<int32_t>(rows),
            .format = format};
  }
};

// Rows of n values at their pitch, zeros behind them.
inline std::vector<float> Padded(const std::vector<float>& rows, int64_t n,
                                 int64_t pitch) {
  std::vector<float> out(rows.size() / static_cast<size_t>(n) *
                         static_cast<size_t>(pitch));
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    out[static_cast<size_t>(at / n * pitch + at % n)] = rows[i];
  }
  return out;
}

}  // namespace millrace::cuda
