// The graph of an encoder, written down layer by layer.
#pragma once

#include <memory>

#include "config/base/status.h"
#include "models/encoder/encoder_config.h"
#include "models/files/safetensors.h"
#include "models/graph/ir.h"

namespace millrace::models::encoder {

// Each tensor that is read has the shape that the config says; errors name it.
// The graph's constants keep the file.
StatusOr<graph::Graph> BuildEncoder(
    const EncoderConfig& config,
    const std::shared_ptr<const SafetensorsFile>& file);

}  // namespace millrace::models::encoder
