// From a picture to one row of a graph's input, in torchvision's words:
//
//   resize (shorter side, or height and width) → center_crop, or letterbox →
//   pixel * rescale_factor → (value - mean) / std → layout
//
//   ASSIGN_OR_RETURN(const ImageSize size, OutputSize(image, options));
//   WriteInput(image, options, row);
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "config/base/status.h"
#include "models/image/image.h"
#include "models/image/resize.h"

namespace millrace::models {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

enum class ColorOrder { kRgb, kBgr, kGray };

struct PreprocessOptions {
  // Of the shorter side; 0: `resize_to` instead.
  int64_t resize_shorter = 0;
  ImageSize resize_to = {};  // 0 x 0: the picture keeps its size
  Interpolation interpolation = Interpolation::kBilinear;
  ImageSize center_crop = {};  // 0 x 0: none; black where it is larger
  // The picture keeps its proportions, in the middle of resize_to; around it
  // is pad_value. There is no center_crop then.
  bool letterbox = false;
  uint8_t pad_value = 114;
  ColorOrder color = ColorOrder::kRgb;
  std::array<double, 3> mean = {0, 0, 0};  // by channel, as `color` orders them
  std::array<double, 3> std = {1, 1, 1};
  double rescale_factor = 1.0 / 255;
  bool channels_last = false;

  int channels() const { return color == ColorOrder::kGray ? 1 : 3; }
};

// Where a picture lies in the input: its pixel (x, y) is at
// (x * scale_x - left, y * scale_y - top).
struct ImagePlacement {
  ImageSize picture;  // as it came
  ImageSize input;
  double scale_x = 1;
  double scale_y = 1;
  double left = 0;  // pixels cut off; below 0: added
  double top = 0;
};
ImagePlacement PlacementOf(const ImageSize& picture,
                           const PreprocessOptions& options);

// What the picture becomes. INVALID_ARGUMENT where that is larger than
// `max_pixels`: a very long picture, resized by its shorter side.
StatusOr<ImageSize> OutputSize(const RgbImage& image,
                               const PreprocessOptions& options,
                               int64_t max_pixels);

// Writes OutputSize's height * width * channels values.
void WriteInput(const RgbImage& image, const PreprocessOptions& options,
                float* row);
// Without rescale, mean and std.
void WriteInput(const RgbImage& image, const PreprocessOptions& options,
                uint8_t* row);

}  // namespace millrace::models
