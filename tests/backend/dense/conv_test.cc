// Convolutions against double precision and bit for bit against scalar: kernels
// of all kinds, images that are parts of wider ones, ranges of pixels.

#include <algorithm>

#include "tests/backend/dense/conv_case.h"

namespace millrace::models {
namespace {

class Conv : public DenseTest {};

TEST_P(Conv, IsNearDoublePrecisionAndGivesTheBitsOfScalar) {
  std::mt19937 rng(1);
  for (const ConvShape& shape : kConvShapes) {
    const ConvCase c(shape, rng);
    Floats packed(table().packed_floats(shape.n, c.k));
    Floats scalar(ScalarTable().packed_floats(shape.n, c.k));
    PackAll(table(), c.w, shape.n, c.k, packed);
    PackAll(ScalarTable(), c.w, shape.n, c.k, scalar);
    Floats none(0), got(c.pixels * shape.n), want(c.pixels * shape.n);
    Floats scratch(
        table().conv_scratch_floats(c.Args(table(), packed, none, got)));
    table().conv(c.Args(table(), packed, scratch, got));
    ScalarTable().conv(c.Args(ScalarTable(), scalar, none, want));
    ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "")
        << &shape - kConvShapes;
    for (int64_t p = 0; p < c.pixels; ++p) {
      for (int64_t n = 0; n < shape.n; ++n) {
        const auto [sum, size] = c.Exact(p, n);
        // k roundings and two more, each a unit of the magnitudes at most.
        const double bound = static_cast<double>(c.k + 2) * kUnit * size;
        ASSERT_NEAR(got[p * shape.n + n], sum, bound) << &shape - kConvShapes;
      }
    }
  }
}

TEST_P(Conv, PixelKeepsItsBitsInEveryRange) {
  std::mt19937 rng(2);
  for (const ConvShape& shape : kConvShapes) {
    const ConvCase c(shape, rng);
    Floats packed(table().packed_floats(shape.n, c.k));
    PackAll(table(), c.w, shape.n, c.k, packed);
    Floats none(0), whole(c.pixels * shape.n);
    Floats scratch(
        table().conv_scratch_floats(c.Args(table(), packed, none, whole)));
    table().conv(c.Args(table(), packed, scratch, whole));
    SCOPED_TRACE(&shape - kConvShapes);
    const ConvArgs args = c.Args(table(), packed, scratch, whole);
    for (int64_t step : {1, 3, 13, 97}) {
      ExpectSameInRanges(table(), args, step, whole);
    }
  }
}

INSTANTIATE_DENSE_TESTS(Conv);

}  // namespace
}  // namespace millrace::models
