// DRY ("don't repeat yourself"): where the text ends with something that stood
// in it before, the token that came next then is penalised, the more the longer
// the repetition is:
//
//   penalty = multiplier * base ^ (length - allowed_length)
//
// A repetition does not reach back over a sequence breaker, such as a line
// break. Source: llama.cpp's sampler of this name, after p-e-w's proposal
// (github.com/oobabooga/text-generation-webui/pull/5677).
//
// Pure functions of the tokens.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/llm/step.h"

namespace millrace::models {

// Sequences of tokens whose text holds, or begins, a breaker: the first token,
// and what may follow it (nothing, where it holds the whole breaker).
struct DryBreakers {
  std::unordered_map<int32_t, std::vector<std::vector<int32_t>>> tails;
};

// The tokens that get a penalty behind `tokens` (prompt and output), each once,
// ids ascending.
std::vector<std::pair<int32_t, float>> DryPenalties(
    const DryParams& params, std::span<const int32_t> tokens);

}  // namespace millrace::models
