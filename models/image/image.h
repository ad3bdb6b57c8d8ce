// A picture in memory: RGB, 8 bits, rows without gaps.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

struct RgbImage {
  static constexpr int kChannels = 3;

  int32_t width = 0;
  int32_t height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3], red first

  int64_t row_bytes() const { return int64_t{width} * kChannels; }
  const uint8_t* row(int64_t y) const {
    return pixels.data() + y * row_bytes();
  }
  uint8_t* row(int64_t y) { return pixels.data() + y * row_bytes(); }
};

// A black picture. INVALID_ARGUMENT when a side is none, or when it has more
// than `max_pixels`: nothing is allocated then. `what` begins the sentence.
StatusOr<RgbImage> MakeImage(const char* what, int64_t width, int64_t height,
                             int64_t max_pixels);

}  // namespace millrace::models
