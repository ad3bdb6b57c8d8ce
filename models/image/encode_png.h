// A picture of one channel as a PNG file, without loss.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "config/base/status.h"

namespace millrace::models {

// pixels [height, width], 8 bits each. INTERNAL where libpng has no memory.
StatusOr<std::string> EncodeGrayPng(std::span<const uint8_t> pixels,
                                    int64_t height, int64_t width);

}  // namespace millrace::models
