// JPEG, PNG and WebP files to pixels, as PIL reads them and converts to RGB:
//
//   ASSIGN_OR_RETURN(RgbImage image, DecodeImage(bytes, {.max_pixels = 1 <<
//   25}));
//
// The first bytes say the format. The Exif orientation is applied. Grey,
// palettes, CMYK and 16 bits become RGB in 8 bits; transparency is dropped, not
// blended. Of an animation the first frame is taken. A file that ends early is
// an error, as are sizes beyond max_pixels, which are seen before memory is
// taken.
#pragma once

#include <cstdint>
#include <span>

#include "config/base/status.h"
#include "models/image/image.h"

namespace millrace::models {

struct DecodeOptions {
  int64_t max_pixels = int64_t{32} << 20;
  // Not 0: a JPEG may be decoded at 1/2, 1/4 or 1/8 while its shorter side
  // stays at least so long.
  int64_t scale_down_to = 0;
};

// INVALID_ARGUMENT says what is wrong with the file; UNIMPLEMENTED names a
// format that is not read.
StatusOr<RgbImage> DecodeImage(std::span<const uint8_t> bytes,
                               const DecodeOptions& options = {});

}  // namespace millrace::models
