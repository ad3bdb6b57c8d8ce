// Sizes are computed in doubles and cut, as the reference does it; resized
// images are rounded to bytes between the steps, as PIL's are.
#include "models/vision/image_tiles.h"

#include <algorithm>

namespace millrace::models::vision {
namespace {

struct Size {
  int64_t width = 0;
  int64_t height = 0;
};

// The longer side becomes `longest`, the other is cut and made even.
Size Fitted(int64_t width, int64_t height, int64_t longest) {
  const double aspect =
      static_cast<double>(width) / static_cast<double>(height);
  Size out;
  if (width >= height) {
    out.width = longest;
    out.height = static_cast<int64_t>(static_cast<double>(longest) / aspect);
    out.height += out.height % 2;
  } else {
    out.height = longest;
    out.width = static_cast<int64_t>(static_cast<double>(longest) * aspect);
    out.width += out.width % 2;
  }
  return {std::max<int64_t>(out.width, 1), std::max<int64_t>(out.height, 1)};
}

// One tile at least.
int64_t InWholeTiles(int64_t side, int64_t tile) {
  return (std::max<int64_t>(side, 1) + tile - 1) / tile * tile;
}

// Both sides in whole tiles.
Size InTiles(const Size& size, int64_t tile) {
  const double aspect =
      static_cast<double>(size.width) / static_cast<double>(size.height);
  Size out;
  if (size.width >= size.height) {
    out.width = InWholeTiles(size.width, tile);
    out.height = InWholeTiles(
        static_cast<int64_t>(static_cast<double>(out.width) / aspect), tile);
  } else {
    out.height = InWholeTiles(size.height, tile);
    out.width = InWholeTiles(
        static_cast<int64_t>(static_cast<double>(out.height) * aspect), tile);
  }
  return out;
}

Size SplitSize(int64_t width, int64_t height, const VisionConfig& config) {
  return InTiles(Fitted(width, height, config.longest_edge), config.tile);
}

RgbImage Resized(const RgbImage& image, const Size& size,
                 Interpolation interpolation) {
  return ResizedWindow(image, size.width, size.height, interpolation,
                       {.width = size.width, .height = size.height});
}

}  // namespace

TileGrid GridOf(int64_t width, int64_t height, const VisionConfig& config) {
  if (!config.splits) return {};
  const Size size = SplitSize(width, height, config);
  if (size.width <= config.tile && size.height <= config.tile) return {};
  return {.rows = static_cast<int32_t>(size.height / config.tile),
          .columns = static_cast<int32_t>(size.width / config.tile)};
}

ImageTiles::ImageTiles(const RgbImage& image, const VisionConfig& config)
    : config_(config), grid_(GridOf(image.width, image.height, config)) {
  const Interpolation how = config.interpolation;
  const Size tile{config.tile, config.tile};
  RgbImage fitted = Resized(
      image, Fitted(image.width, image.height, config.longest_edge), how);
  if (!config.splits) {
    whole_ = Resized(fitted, tile, how);
    return;
  }
  split_ =
      Resized(fitted, InTiles({fitted.width, fitted.height}, config.tile), how);
  whole_ = Resized(split_, tile, how);
}

void ImageTiles::Write(int64_t tile, float* out) const {
  const bool is_whole = tile + 1 == grid_.count();
  const RgbImage& image = is_whole ? whole_ : split_;
  const int64_t side = config_.tile;
  const int64_t top = is_whole ? 0 : tile / grid_.columns * side;
  const int64_t left = is_whole ? 0 : tile % grid_.columns * side;
  // A byte has few values: each is computed once.
  float values[RgbImage::kChannels][256];
  for (size_t c = 0; c < RgbImage::kChannels; ++c) {
    for (int byte = 0; byte < 256; ++byte) {
      values[c][byte] = static_cast<float>(
          (byte * config_.rescale_factor - config_.mean[c]) / config_.std[c]);
    }
  }
  for (int64_t y = 0; y < side; ++y) {
    const uint8_t* row = image.row(top + y) + left * RgbImage::kChannels;
    for (int64_t x = 0; x < side; ++x, row += RgbImage::kChannels) {
      for (size_t c = 0; c < RgbImage::kChannels; ++c) {
        out[(static_cast<int64_t>(c) * side + y) * side + x] =
            values[c][row[c]];
      }
    }
  }
}

}  // namespace millrace::models::vision
