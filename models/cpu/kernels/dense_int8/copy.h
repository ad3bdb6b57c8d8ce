// Runs of bytes, copied or filled, as bytes or as words. S is what
// kernels/dense_int8/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

template <class S>
void CopyBytes(const uint8_t* from, int64_t n, uint8_t* to) {
  constexpr int64_t kBytes = S::kRawBytes;
  for (; n >= kBytes; n -= kBytes, from += kBytes, to += kBytes) {
    S::StoreRaw(to, kBytes, S::LoadRaw(from, kBytes));
  }
  if (n > 0) S::StoreRaw(to, n, S::LoadRaw(from, n));
}
// As words; writes up to a vector more.
template <class S>
void CopyBytes(const uint8_t* from, int64_t n, uint16_t* to) {
  constexpr int64_t kBytes = S::kRawBytes;
  for (; n > 0; n -= kBytes, from += kBytes, to += kBytes) {
    S::StoreWords(to, S::LoadRaw(from, n));
  }
}

template <typename T>
void FillBytes(uint8_t byte, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = byte;
}

inline int64_t Between(int64_t v, int64_t low, int64_t high) {
  return v < low ? low : v > high ? high : v;
}

}  // namespace
}  // namespace millrace::models
