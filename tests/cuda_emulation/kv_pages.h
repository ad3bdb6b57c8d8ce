// Pages of keys and values as the kernels see them, for tests of kernels that
// read or write them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "models/cuda/kernels.h"
#include "models/tensor/float16.h"
#include "tests/cuda_emulation/device_array.h"

namespace millrace::cuda {

struct PageShape {
  int32_t kv_heads;
  int32_t head_dim;
  bool f32;
  float key_divisor = 1;  // a power of two
};

// One sequence of `length` keys, random in [-1, 1], on shuffled pages of layer
// 1 of 2. All else is NaN there; pages before the one of position `first` have
// no number.
class KvPages {
 public:
  KvPages(const PageShape& shape, int32_t length, int32_t first = 0)
      : shape_(shape),
        page_values_(4 * int64_t{shape.kv_heads} * kPageRows * shape.head_dim),
        pages_(static_cast<size_t>((length + kPageRows - 1) / kPageRows)),
        bytes_(Bytes(shape, page_values_, length, pages_, first)),
        pool_(bytes_) {}

  KvCache View() {
    return {.base = pool_.get(),
            .page_values = page_values_,
            .kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .f32 = shape_.f32};
  }
  const std::vector<int32_t>& pages() const { return pages_; }
  // What kernels have written.
  void Download() { bytes_ = pool_.Read(); }
  double At(bool value, int32_t position, int32_t head, int32_t d) const {
    return Get(shape_, bytes_,
               Place(shape_, page_values_, pages_, value, position, head) + d);
  }

 private:
  static int64_t Place(const PageShape& shape, int64_t page_values,
                       const std::vector<int32_t>& pages, bool value,
                       int32_t position, int32_t head) {
    return pages[static_cast<size_t>(position / kPageRows)] * page_values +
           (((int64_t{2} + (value ? 1 : 0)) * shape.kv_heads + head) *
                kPageRows +
            position % kPageRows) *
               shape.head_dim;
  }
  static double Get(const PageShape& shape, const std::vector<std::byte>& bytes,
                    int64_t at) {
    return shape.f32 ? reinterpret_cast<const float*>(bytes.data())[at]
                     : models::HalfToFloat(
                           reinterpret_cast<const uint16_t*>(bytes.data())[at]);
  }
  static std::vector<std::byte> Bytes(const PageShape& shape,
                                      int64_t page_values, int32_t length,
                                      std::vector<int32_t>& pages,
                                      int32_t first) {
    const auto num_pages = static_cast<int32_t>(pages.size()) + 1;
    std::vector<std::byte> bytes(
        static_cast<size_t>(page_values * num_pages * (shape.f32 ? 4 : 2)),
        std::byte{0xff});  // NaN
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i] = num_pages - 1 - static_cast<int32_t>(i);
    }
    std::mt19937_64 random(77);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int32_t position = first / kPageRows * kPageRows; position < length;
         ++position) {
      for (const bool value : {false, true}) {
        for (int32_t head = 0; head < shape.kv_heads; ++head) {
          const int64_t at =
              Place(shape, page_values, pages, value, position, head);
          for (int64_t d = at; d < at + shape.head_dim; ++d) {
            const float x = uniform(random) / (value ? 1 : shape.key_divisor);
            if (shape.f32) {
              reinterpret_cast<float*>(bytes.data())[d] = x;
            } else {
              reinterpret_cast<uint16_t*>(bytes.data())[d] =
                  models::FloatToHalf(x);
            }
          }
        }
      }
    }
    for (int32_t i = 0; i < first / kPageRows; ++i) {
      pages[static_cast<size_t>(i)] = -1;
    }
    return bytes;
  }
  PageShape shape_;
  int64_t page_values_;
  std::vector<int32_t> pages_;
  std::vector<std::byte> bytes_;
  DeviceArray<std::byte> pool_;
};

}  // namespace millrace::cuda
