// One reader for each format; decode.h chooses. Private to image.
#pragma once

#include <cstdint>
#include <span>

#include "config/base/status.h"
#include "models/image/decode.h"
#include "models/image/image.h"

namespace millrace::models {

StatusOr<RgbImage> DecodeJpeg(std::span<const uint8_t> bytes,
                              const DecodeOptions& options);
StatusOr<RgbImage> DecodePng(std::span<const uint8_t> bytes,
                             const DecodeOptions& options);
StatusOr<RgbImage> DecodeWebp(std::span<const uint8_t> bytes,
                              const DecodeOptions& options);

}  // namespace millrace::models
