// The sampling that a model's requests get where they leave fields out. Read
// from the first of these that says anything:
//
//   1. generation_config.json of the model's folder, or the keys
//      general.sampling.* of its GGUF file
//   2. what the makers of a known model advise, where its files say nothing
//
// Then the setting override_generation_config changes single fields.
//
//   ASSIGN_OR_RETURN(const ModelGeneration generation,
//                    ReadModelGeneration(*source, settings));
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"
#include "config/schema.h"
#include "models/llm/source.h"
#include "models/text/generation_defaults.h"

namespace millrace::models {

struct ModelGeneration {
  GenerationDefaults defaults;
  // Where they come from, for people: "generation_config.json", "none".
  std::string origin;
};

// INVALID_ARGUMENT names the file or setting, the field, its value and its
// bounds.
StatusOr<ModelGeneration> ReadModelGeneration(
    const ModelSource& source, const config::LlmSettings& settings);

// The fields of a generation_config.json; those that are not about sampling
// are skipped. `where` stands in front of errors.
StatusOr<GenerationDefaults> ParseGenerationConfig(std::string_view json,
                                                   std::string_view where);

// INVALID_ARGUMENT when a field is out of its bounds. `where` as above.
Status CheckGenerationDefaults(const GenerationDefaults& defaults,
                               std::string_view where);

}  // namespace millrace::models
