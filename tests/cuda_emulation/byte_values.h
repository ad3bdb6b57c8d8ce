// Bytes and floats for tests of kernels of quantised graphs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace millrace::cuda {

template <typename T>
std::vector<T> RandomInts(int64_t n, int low, int high, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> uniform(low, high);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = static_cast<T>(uniform(random));
  return values;
}
inline std::vector<uint8_t> Bytes(int64_t n, uint64_t seed) {
  return RandomInts<uint8_t>(n, 0, 255, seed);
}
inline std::vector<float> Floats(int64_t n, float most, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-most, most);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}
template <typename T>
T At(const std::vector<T>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

// The nearest byte of v * scale + zero.
inline uint8_t ByteOf(float v, float scale, int32_t zero) {
  const auto low = static_cast<float>(-zero);
  const auto high = static_cast<float>(255 - zero);
  return static_cast<uint8_t>(
      static_cast<int32_t>(std::nearbyint(std::clamp(v * scale, low, high))) +
      zero);
}

}  // namespace millrace::cuda
