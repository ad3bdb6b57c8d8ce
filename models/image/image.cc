#include "models/image/image.h"

#include <string>

namespace millrace::models {

// Above any format's limits; keeps products within 64 bits.
constexpr int64_t kMaxSide = 1 << 24;

StatusOr<RgbImage> MakeImage(const char* what, int64_t width, int64_t height,
                             int64_t max_pixels) {
  const std::string size =
      std::to_string(width) + " x " + std::to_string(height) + " pixels";
  if (width < 1 || height < 1) {
    return InvalidArgument(std::string(what) + " has " + size +
                           ", which is no picture");
  }
  if (width > kMaxSide || height > kMaxSide || width * height > max_pixels) {
    return InvalidArgument(std::string(what) + " has " + size +
                           " but at most " + std::to_string(max_pixels) +
                           " pixels are allowed (max_pixels); send a smaller "
                           "one");
  }
  RgbImage image;
  image.width = static_cast<int32_t>(width);
  image.height = static_cast<int32_t>(height);
  image.pixels.resize(
      static_cast<size_t>(width * height * RgbImage::kChannels));
  return image;
}

}  // namespace millrace::models
