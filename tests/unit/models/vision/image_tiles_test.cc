// Tiles against those of transformers' image processor.
#include "models/vision/image_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/models/vision/tiny_vision.h"

namespace millrace::models::vision {
namespace {

TEST(ImageTiles, PixelsAreThoseOfTransformers) {
  int64_t compared = 0;
  for (const auto& row : Tiny().golden["cases"]) {
    const std::string name = row["name"];
    const auto found = Tiny().arrays.find(name + "/pixels");
    if (found == Tiny().arrays.end()) continue;
    const Tensor& wanted = found->second;  // bytes, [tiles][3][side][side]
    const VisionConfig config = TinyConfig(row["split"]);
    std::vector<float> values(static_cast<size_t>(config.tile_values()));
    int64_t at = 0;
    for (const std::string image : row["images"]) {
      const RgbImage decoded = Decoded(image);
      const ImageTiles tiles(decoded, config);
      for (int64_t tile = 0; tile < tiles.grid().count(); ++tile) {
        tiles.Write(tile, values.data());
        ASSERT_LT(at, wanted.shape()[0]) << name;
        const uint8_t* bytes =
            wanted.data<uint8_t>() + at++ * config.tile_values();
        for (int64_t i = 0; i < config.tile_values(); ++i) {
          const double pixel = (bytes[i] / 255.0 - 0.5) / 0.5;
          // Equal bytes; another release of libjpeg may round otherwise.
          const double apart = image.ends_with("jpg") ? 2.0 / 255 : 0;
          ASSERT_NEAR(values[static_cast<size_t>(i)], pixel, apart + 1e-6)
              << name << " tile " << at - 1 << " value " << i;
        }
      }
    }
    EXPECT_EQ(at, wanted.shape()[0]) << name;
    compared += at;
  }
  EXPECT_GT(compared, 30);
}

// Python's numbers for these sizes, by get_number_of_image_patches' own steps.
TEST(ImageTiles, GridsOfThePublishedModel) {
  VisionConfig config;
  config.tile = 512;
  config.longest_edge = 2048;
  EXPECT_EQ(GridOf(2048, 2048, config), (TileGrid{4, 4}));
  EXPECT_EQ(GridOf(1920, 1080, config), (TileGrid{3, 4}));
  EXPECT_EQ(GridOf(640, 480, config), (TileGrid{3, 4}));
  EXPECT_EQ(GridOf(480, 640, config), (TileGrid{4, 3}));
  EXPECT_EQ(GridOf(1, 10'000, config), (TileGrid{4, 1}));
  EXPECT_EQ(GridOf(10'000, 1, config), (TileGrid{1, 4}));
  config.longest_edge = 512;
  EXPECT_EQ(GridOf(640, 480, config), (TileGrid{0, 0}));
  EXPECT_EQ(GridOf(640, 480, config).count(), 1);
  config.longest_edge = 2048;
  config.splits = false;
  EXPECT_EQ(GridOf(640, 480, config), (TileGrid{0, 0}));
}

}  // namespace
}  // namespace millrace::models::vision
