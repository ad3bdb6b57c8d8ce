// Functions of whole arrays.

#include "models/cpu/kernels/dense/cells.h"
#include "models/cpu/kernels/dense/functions.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models {

template <>
void DenseParts<NeonIsa>::UnaryOf(Unary f, float a, float b, const float* x,
                                  int64_t n, float* out) {
  Arrays<Neon8>::UnaryOf(f, a, b, x, n, out);
}
template <>
void DenseParts<NeonIsa>::BinaryOf(Binary f, const float* x, int64_t step_x,
                                   const float* y, int64_t step_y, int64_t n,
                                   float* out) {
  Arrays<Neon8>::BinaryOf(f, x, step_x, y, step_y, n, out);
}

template <>
void DenseParts<NeonIsa>::Where(const uint8_t* mask, const float* x,
                                int64_t step_x, const float* y, int64_t step_y,
                                int64_t n, float* out) {
  Arrays<Neon8>::Where(mask, x, step_x, y, step_y, n, out);
}

template <>
void DenseParts<NeonIsa>::Mix(const float* const* rows, const float* weights,
                              int64_t count, int64_t n, float* out) {
  Arrays<Neon8>::Mix(rows, weights, count, n, out);
}

template <>
void DenseParts<NeonIsa>::Lstm(const float* gates, int64_t n, float* c,
                               float* h) {
  Cells<Neon8>::Lstm(gates, n, c, h);
}
template <>
void DenseParts<NeonIsa>::Gru(const float* x, const float* r, int64_t n,
                              float* h) {
  Cells<Neon8>::Gru(x, r, n, h);
}

}  // namespace millrace::models
