// How a camera was held: the orientation of a picture's Exif block.
#pragma once

#include <cstdint>
#include <span>

#include "models/image/image.h"

namespace millrace::models {

// Tag 0x0112 of the first directory of a TIFF block, with or without "Exif\0\0"
// before it: 1 to 8. 1 (as it lies) where it is missing or makes no sense.
int ExifOrientation(std::span<const uint8_t> block);

// The picture as it is to be looked at (TIFF 6.0, Orientation).
RgbImage Oriented(RgbImage image, int orientation);

}  // namespace millrace::models
