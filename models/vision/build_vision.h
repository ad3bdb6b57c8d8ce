// The graph of an encoder of images with its connector: from one tile,
// pixel_values [1, 3, tile, tile], to rows of the language model, [1,
// rows_per_tile, text_hidden].
#pragma once

#include "config/base/status.h"
#include "models/encoder/encoder_tensors.h"
#include "models/graph/ir.h"
#include "models/vision/vision_config.h"

namespace millrace::models::vision {

// Each tensor that is read has the shape that the config says; errors name it.
// The graph's constants keep the files.
StatusOr<graph::Graph> BuildVision(const VisionConfig& config,
                                   const encoder::EncoderTensors& tensors);

}  // namespace millrace::models::vision
