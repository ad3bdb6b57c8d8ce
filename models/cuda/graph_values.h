// Where a kernel of graphs finds values, and how they lie there: in f32, or in
// 16 bits each, which arithmetic in f32 is loaded from and rounded to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::cuda {

enum class GraphFormat : int32_t { kF32, kF16, kBf16, kU8 };
constexpr int64_t BytesOf(GraphFormat format) {
  return format == GraphFormat::kF32 ? 4 : format == GraphFormat::kU8 ? 1 : 2;
}

// Values that are read. Null: there are none.
struct ValuesIn {
  const void* data = nullptr;
  GraphFormat format = GraphFormat::kF32;

  constexpr ValuesIn() = default;
  constexpr ValuesIn(const void* at, GraphFormat as) : data(at), format(as) {}
  constexpr ValuesIn(const float* at) : data(at) {}
  constexpr ValuesIn(const uint8_t* at) : data(at), format(GraphFormat::kU8) {}

  constexpr bool any() const { return data != nullptr; }
  // From value `count` on.
  constexpr ValuesIn operator+(int64_t count) const {
    return {static_cast<const std::byte*>(data) + count * BytesOf(format),
            format};
  }
  constexpr ValuesIn& operator+=(int64_t count) {
    return *this = *this + count;
  }
};

// Values that are written, likewise.
struct ValuesOut {
  void* data = nullptr;
  GraphFormat format = GraphFormat::kF32;

  constexpr ValuesOut() = default;
  constexpr ValuesOut(void* at, GraphFormat as) : data(at), format(as) {}
  constexpr ValuesOut(float* at) : data(at) {}
  constexpr ValuesOut(uint8_t* at) : data(at), format(GraphFormat::kU8) {}

  constexpr ValuesOut operator+(int64_t count) const {
    return {static_cast<std::byte*>(data) + count * BytesOf(format), format};
  }
};

}  // namespace millrace::cuda
