// A llama in double precision, as plain as the paper: the oracle of the tests.
// One token after the other, whole history, no caches of anything but K and V.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/llm/config.h"
#include "models/llm/model_tensors.h"

namespace millrace::models {

// Logits after each token: [tokens][vocab].
std::vector<std::vector<double>> ReferenceLogits(
    const ModelConfig& config, const ModelTensors& tensors,
    std::span<const int32_t> tokens);

}  // namespace millrace::models
