// Resizing with antialias, as PIL's Image.resize does it and torchvision with
// antialias=True: a pixel is the weighted mean of those below a kernel that
// grows with the scale (separable; across first, rounded to 8 bits between, the
// order of Pillow up to 12).
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "models/image/image.h"

namespace millrace::models {

enum class Interpolation {
  kNearest,
  kBilinear,  // triangle
  kBicubic,   // Keys 1981, a = -0.5
  kLanczos,   // of three lobes
};

// A part of a picture that is not there as a whole.
struct ImageWindow {
  int64_t left = 0;
  int64_t top = 0;
  int64_t width = 0;
  int64_t height = 0;
};

// That part of `image` resized to width x height; only it is computed. The
// window lies within the resized picture.
RgbImage ResizedWindow(const RgbImage& image, int64_t width, int64_t height,
                       Interpolation interpolation, const ImageWindow& window);

}  // namespace millrace::models
