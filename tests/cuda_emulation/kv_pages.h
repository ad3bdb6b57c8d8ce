// Pages of keys and values as the kernels see them, for tests of kernels that
// read or write them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "models/cuda/kernels.h"
#include "models/tensor/float16.h"
#include "tests/cuda_emulation/device_array.h"

namespace millrace::cuda {

struct PageShape {
  int32_t kv_heads;
  int32_t head_dim;
  KvFormat format;
  float key_divisor = 1;  // a power of two
};

// One sequence of `length` keys, random in [-1, 1], on shuffled pages of layer
// 1 of 2. All else is NaN there; pages before the one of position `first` have
// no number.
class KvPages {
 public:
  KvPages(const PageShape& shape, int32_t length, int32_t first = 0)
      : kv_(KvCacheOf(shape.format, 2, shape.kv_heads, shape.head_dim)),
        pages_(static_cast<size_t>((length + kPageRows - 1) / kPageRows)),
        bytes_(Bytes(shape, length, first)),
        pool_(bytes_) {
    kv_.base = pool_.get();
  }

  KvCache View() const { return kv_; }
  const std::vector<int32_t>& pages() const { return pages_; }
  // What kernels have written.
  void Download() { bytes_ = pool_.Read(); }
  double At(bool value, int32_t position, int32_t head, int32_t d) const {
    const std::byte* row = bytes_.data() + Place(value, position, head);
    if (kv_.format == KvFormat::kF32) {
      return reinterpret_cast<const float*>(row)[d];
    }
    if (kv_.format == KvFormat::kInt8) {
      return double{ScaleAt(value, position, head)} *
             reinterpret_cast<const int8_t*>(row)[d];
    }
    return models::HalfToFloat(reinterpret_cast<const uint16_t*>(row)[d]);
  }
  // kInt8: the d of a key or value of a head, and its integers, those behind
  // head_dim included.
  float ScaleAt(bool value, int32_t position, int32_t head) const {
    return reinterpret_cast<const float*>(
        bytes_.data() + Page(value, position, head) +
        kPageRows * kv_.row_bytes)[position % kPageRows];
  }
  std::vector<int8_t> IntegersAt(bool value, int32_t position,
                                 int32_t head) const {
    const auto* row = reinterpret_cast<const int8_t*>(
        bytes_.data() + Place(value, position, head));
    return {row, row + kv_.row_bytes};
  }

 private:
  // Of a head: where its keys or values of a page are.
  int64_t Page(bool value, int32_t position, int32_t head) const {
    return pages_[static_cast<size_t>(position / kPageRows)] * kv_.page_bytes +
           ((int64_t{2} + (value ? 1 : 0)) * kv_.kv_heads + head) *
               kv_.head_bytes;
  }
  int64_t Place(bool value, int32_t position, int32_t head) const {
    return Page(value, position, head) +
           int64_t{position % kPageRows} * kv_.row_bytes;
  }
  // `scale`: where that of int8 is.
  static void Store(const KvCache& kv, std::span<const float> x, std::byte* row,
                    std::byte* scale) {
    float d8 = 0;
    for (const float value : x) d8 = std::max(d8, std::fabs(value) / 127);
    if (kv.format == KvFormat::kInt8) std::memcpy(scale, &d8, sizeof d8);
    for (size_t d = 0; d < x.size(); ++d) {
      if (kv.format == KvFormat::kInt8) {
        reinterpret_cast<int8_t*>(row)[d] =
            static_cast<int8_t>(std::lrint(x[d] / d8));
      } else if (kv.format == KvFormat::kF32) {
        reinterpret_cast<float*>(row)[d] = x[d];
      } else {
        reinterpret_cast<uint16_t*>(row)[d] = models::FloatToHalf(x[d]);
      }
    }
  }
  std::vector<std::byte> Bytes(const PageShape& shape, int32_t length,
                               int32_t first) {
    const auto num_pages = static_cast<int32_t>(pages_.size()) + 1;
    std::vector<std::byte> bytes(
        static_cast<size_t>(kv_.page_bytes * num_pages),
        std::byte{0xff});  // NaN
    for (size_t i = 0; i < pages_.size(); ++i) {
      pages_[i] = num_pages - 1 - static_cast<int32_t>(i);
    }
    std::mt19937_64 random(77);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> row(static_cast<size_t>(shape.head_dim));
    for (int32_t position = first / kPageRows * kPageRows; position < length;
         ++position) {
      for (const bool value : {false, true}) {
        for (int32_t head = 0; head < shape.kv_heads; ++head) {
          for (float& x : row) {
            x = uniform(random) / (value ? 1 : shape.key_divisor);
            // So that d differ.
            if (kv_.format == KvFormat::kInt8) {
              x /= static_cast<float>(1 + position * 7 % 40);
            }
          }
          Store(kv_, row, bytes.data() + Place(value, position, head),
                bytes.data() + Page(value, position, head) +
                    kPageRows * kv_.row_bytes + 4 * (position % kPageRows));
        }
      }
    }
    for (int32_t i = 0; i < first / kPageRows; ++i) {
      pages_[static_cast<size_t>(i)] = -1;
    }
    return bytes;
  }

  KvCache kv_;
  std::vector<int32_t> pages_;
  std::vector<std::byte> bytes_;
  DeviceArray<std::byte> pool_;
};

}  // namespace millrace::cuda
