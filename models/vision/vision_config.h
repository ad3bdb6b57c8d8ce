// What a folder of the Idefics3 (SmolVLM) class says of its images: config.json
// of the encoder, preprocessor_config.json (or the image_processor of
// processor_config.json) of how an image becomes tiles.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/image/resize.h"

namespace millrace::models::vision {

struct VisionConfig {
  // ---- the encoder, a transformer of SigLIP's kind ----
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t tile = 0;   // pixels of a side of what it sees at once
  int64_t patch = 0;  // pixels of a side; one token of the encoder
  double epsilon = 1e-6;
  std::string activation;  // as GraphWriter::Activation names it

  // ---- the connector ----
  int64_t scale = 0;  // so many patches a side become one row
  int64_t text_hidden = 0;
  int32_t image_token = 0;  // of the language model, where a row stands

  // ---- from image to tiles ----
  bool splits = true;        // else the whole image alone, as one tile
  int64_t longest_edge = 0;  // of the image before it is split
  Interpolation interpolation = Interpolation::kLanczos;
  std::array<double, 3> mean = {0.5, 0.5, 0.5};
  std::array<double, 3> std = {0.5, 0.5, 0.5};
  double rescale_factor = 1.0 / 255;

  int64_t patches_per_side() const { return tile / patch; }
  // Rows for the language model that a tile becomes.
  int64_t rows_per_tile() const {
    const int64_t side = patches_per_side() / scale;
    return side * side;
  }
  int64_t tile_values() const { return 3 * tile * tile; }
};

// Whether config.json names a class with an encoder of images that is served.
bool HasVision(std::string_view config);

// INVALID_ARGUMENT or UNIMPLEMENTED names the key. `preprocessor` may be empty:
// the defaults of the class.
StatusOr<VisionConfig> ReadVisionConfig(std::string_view config,
                                        std::string_view preprocessor);

}  // namespace millrace::models::vision
