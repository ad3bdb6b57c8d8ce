// The graph of an encoder, written down layer by layer.
#pragma once

#include "config/base/status.h"
#include "models/encoder/encoder_config.h"
#include "models/encoder/encoder_tensors.h"
#include "models/graph/ir.h"

namespace millrace::models::encoder {

// Each tensor that is read has the shape that the config says; errors name it.
// The graph's constants keep the files.
StatusOr<graph::Graph> BuildEncoder(const EncoderConfig& config,
                                    const EncoderTensors& tensors);

// ---- by family ----
StatusOr<graph::Graph> BuildBert(const EncoderConfig& config,
                                 const EncoderTensors& tensors);
StatusOr<graph::Graph> BuildRotary(const EncoderConfig& config,
                                   const EncoderTensors& tensors);

}  // namespace millrace::models::encoder
