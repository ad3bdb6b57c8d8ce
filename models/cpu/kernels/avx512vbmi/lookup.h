// A table of 256 bytes by permutations of bytes. Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace millrace::models {
namespace {

// Each half of the table at once, chosen by the upper bit of a byte.
struct ByBytes {
  static __m512i Of(const uint8_t* table, __m512i v) {
    const __m512i low = _mm512_permutex2var_epi8(
        _mm512_loadu_si512(table), v, _mm512_loadu_si512(table + 64));
    const __m512i high = _mm512_permutex2var_epi8(
        _mm512_loadu_si512(table + 128), v, _mm512_loadu_si512(table + 192));
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high);
  }
};

}  // namespace
}  // namespace millrace::models
