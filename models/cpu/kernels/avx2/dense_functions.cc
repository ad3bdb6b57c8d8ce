// Functions of whole arrays.

#include "models/cpu/kernels/avx2/dense_vec8.h"
#include "models/cpu/kernels/dense/cells.h"
#include "models/cpu/kernels/dense/functions.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {

template <>
void DenseParts<Avx2Isa>::UnaryOf(Unary f, float a, float b, const float* x,
                                  int64_t n, float* out) {
  Arrays<Vec8>::UnaryOf(f, a, b, x, n, out);
}
template <>
void DenseParts<Avx2Isa>::BinaryOf(Binary f, const float* x, int64_t step_x,
                                   const float* y, int64_t step_y, int64_t n,
                                   float* out) {
  Arrays<Vec8>::BinaryOf(f, x, step_x, y, step_y, n, out);
}

template <>
void DenseParts<Avx2Isa>::Where(const uint8_t* mask, const float* x,
                                int64_t step_x, const float* y, int64_t step_y,
                                int64_t n, float* out) {
  Arrays<Vec8>::Where(mask, x, step_x, y, step_y, n, out);
}

template <>
void DenseParts<Avx2Isa>::Mix(const float* const* rows, const float* weights,
                              int64_t count, int64_t n, float* out) {
  Arrays<Vec8>::Mix(rows, weights, count, n, out);
}

template <>
void DenseParts<Avx2Isa>::Lstm(const float* gates, int64_t n, float* c,
                               float* h) {
  Cells<Vec8>::Lstm(gates, n, c, h);
}
template <>
void DenseParts<Avx2Isa>::Gru(const float* x, const float* r, int64_t n,
                              float* h) {
  Cells<Vec8>::Gru(x, r, n, h);
}

}  // namespace millrace::models
