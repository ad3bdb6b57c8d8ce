// One reader for each format; decode.h chooses. Private to image.
#pragma once

#include <cstdint>
#include <span>

#include "config/base/status.h"
#include "models/image/decode.h"
#include "models/image/image.h"

namespace millrace::models {

StatusOr<Image> DecodeJpeg(std::span<const uint8_t> bytes,
                           const DecodeOptions& options);
StatusOr<Image> DecodePng(std::span<const uint8_t> bytes,
                          const DecodeOptions& options);
StatusOr<Image> DecodeWebp(std::span<const uint8_t> bytes,
                           const DecodeOptions& options);

}  // namespace millrace::models
