// Which architectures are served: one table, architecture name → family.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/llm/backend.h"
#include "models/llm/config.h"
#include "models/llm/weights.h"

namespace millrace::models {

struct Family {
  std::string_view architecture;  // general.architecture of the file
  FamilyTraits traits;
  // Records the model's phases.
  void (*recipe)(const ModelConfig& config, const ModelWeights& weights,
                 Backend& backend);
};

// Null: no such family.
const Family* FindFamily(std::string_view architecture);
// "llama, qwen2"
std::string FamilyNames();

// ---- recipes, one file each ----
void LlamaRecipe(const ModelConfig& config, const ModelWeights& weights,
                 Backend& backend);

}  // namespace millrace::models
