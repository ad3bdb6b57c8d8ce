// Teacher forcing: the logits after every token of a given text, for measuring
// and for comparing engines. Free-running text of two engines cannot be
// compared; this can.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "config/base/status.h"
#include "models/llm/model.h"

namespace millrace::models {

// Runs the tokens as one sequence from position 0, `chunk` of them a step (0:
// as many as fit), and calls back with the logits that follow each, in order,
// from position `first` on, with the adapter and with vectors in place of some
// embeddings if there are any. Nothing else may use the runner meanwhile; the
// calling thread becomes its worker 0.
Status ScoreTokens(
    LlmModel& model, std::span<const int32_t> tokens, int32_t chunk,
    const std::function<void(int32_t position, std::span<const float> logits)>&
        seen,
    int32_t first = 0, std::shared_ptr<const LoraAdapter> adapter = nullptr,
    std::shared_ptr<const PromptEmbeddings> embeddings = nullptr);

}  // namespace millrace::models
