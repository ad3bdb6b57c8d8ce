// An image as the tiles that the encoder sees one by one, as Idefics3's image
// processor cuts them: the image is resized so that its longer side is
// longest_edge, then to whole tiles; behind the tiles, row by row, comes the
// whole image as one tile.
//
//   const ImageTiles tiles(image, config);
//   for (tile < tiles.grid().count()) tiles.Write(tile, values);
#pragma once

#include <cstdint>

#include "models/image/image.h"
#include "models/vision/vision_config.h"

namespace millrace::models::vision {

struct TileGrid {
  // Both 0: the whole image is the only tile.
  int32_t rows = 0;
  int32_t columns = 0;

  int64_t count() const { return int64_t{rows} * columns + 1; }
  bool operator==(const TileGrid&) const = default;
};

// Of an image of so many pixels.
TileGrid GridOf(int64_t width, int64_t height, const VisionConfig& config);

// Immutable. Holds the resized image: longest_edge² pixels at most.
class ImageTiles {
 public:
  ImageTiles(const RgbImage& image, const VisionConfig& config);

  const TileGrid& grid() const { return grid_; }
  // out [3][tile][tile], normalised.
  void Write(int64_t tile, float* out) const;

 private:
  const VisionConfig& config_;  // outlives it
  TileGrid grid_;
  RgbImage split_;  // rows x columns tiles, if there are any
  RgbImage whole_;  // one tile
};

}  // namespace millrace::models::vision
