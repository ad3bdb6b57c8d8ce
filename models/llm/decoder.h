// The phases of a decoder-only transformer, layer by layer as their specs say.
#pragma once

#include "models/llm/backend.h"
#include "models/llm/config.h"
#include "models/llm/weights.h"

namespace millrace::models {

// Records one step, which ends with logits, or hidden rows where the backend's
// shape says so. The weights are those of this backend.
void RecordDecoder(const ModelConfig& config, const ModelWeights& weights,
                   Backend& backend);

}  // namespace millrace::models
