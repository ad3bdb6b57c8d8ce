// Weight formats as GGUF files hold them, byte by byte. A row of k values is
// k / block_values blocks of block_bytes bytes, little-endian, no padding:
//
//   F32   [f32]                               F16, BF16  [16 bits]
//   Q8_0  [f16 d][int8 q × 32]                w = d * q
//   Q4_0  [f16 d][16 bytes]                   w = d * (nibble - 8)
//   Q4_1  [f16 d][f16 m][16 bytes]            w = d * nibble + m
//   Q5_0, Q5_1    as those with 32 more bits before the nibbles, one a value:
//                 q of 5 bits, w = d * (q - 16) and w = d * q + m
//   IQ4_NL  [f16 d][16 bytes]                 w = d * table[nibble]
//   MXFP4   [exponent e][16 bytes]            w = 2^(e - 128) * table[nibble]
//   Q2_K to Q6_K, IQ4_XS   256 values with a scale, Q2_K, Q4_K and Q5_K also a
//                 minimum, of 4 to 8 bits for each 16 or 32 of them
// The low nibble of byte i is value i, the high nibble value i + 16. What each
// bit of the others means is written down in dequantize.cc.
// Source: the GGUF specification and ggml's block structs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "models/tensor/float16.h"

namespace millrace::models {

// Numbers as in the file.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;
  int32_t block_values;
  int32_t block_bytes;
  bool served;  // weights of this type can be computed with
};

// Null for a number no known type has.
const GgmlTypeInfo* FindGgmlType(uint32_t number);
const GgmlTypeInfo& InfoOf(GgmlType type);
// "F32, F16, …" for messages.
std::string ServedTypeNames();

// One row of k values (whole blocks) as f32, every operation rounded to f32 as
// the gguf Python package does; false when the type is not served. The source
// needs no alignment.
bool DequantizeRow(GgmlType type, const void* row, int64_t k, float* out);

// The other way, to Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1, with the bits that the gguf
// Python package gives; false for other types. k is a multiple of 32.
bool QuantizeRow(GgmlType type, const float* row, int64_t k, void* out);

}  // namespace millrace::models
