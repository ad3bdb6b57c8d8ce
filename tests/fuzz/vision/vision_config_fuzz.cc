// Arbitrary bytes as config.json and, behind a NUL, preprocessor_config.json of
// a folder with an encoder of images; then a small image is cut into tiles.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/image/image.h"
#include "models/vision/image_tiles.h"
#include "models/vision/vision_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.find('\0');
  const std::string_view config = all.substr(0, cut);
  vision::HasVision(config);
  const auto read = vision::ReadVisionConfig(
      config,
      cut == std::string_view::npos ? std::string_view() : all.substr(cut + 1));
  if (!read.ok() || read->tile > 32 || read->longest_edge > 256) return 0;
  const auto image = MakeImage("it", 1 + static_cast<int64_t>(size % 13),
                               1 + static_cast<int64_t>(size % 7), 1 << 10);
  if (!image.ok()) __builtin_trap();
  const vision::ImageTiles tiles(*image, *read);
  std::vector<float> values(static_cast<size_t>(read->tile_values()));
  for (int64_t tile = 0; tile < tiles.grid().count(); ++tile) {
    tiles.Write(tile, values.data());
  }
  return 0;
}
