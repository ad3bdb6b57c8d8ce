// config.json of a Hugging Face folder under the names that a ModelSource uses
// (hf_names.h has the tables).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/source.h"

namespace millrace::models {

struct HfNested;  // models/llm/hf_names.h

struct HfConfig {
  std::string architecture;  // "llama"; the folder's own word when not known
  std::map<std::string, SourceValue> values;  // by ModelSource's keys
  // By the name of the tensor that a GGUF file has them in.
  std::map<std::string, std::vector<float>> rope_factors;
  std::optional<bool> tied_output;  // absent: the folder does not say
  std::vector<int64_t> eos_ids;
  bool has_head = true;  // else the class is that of a model without one
  const HfNested* nested = nullptr;  // null: a plain folder
};

// INVALID_ARGUMENT or UNIMPLEMENTED names the key.
StatusOr<HfConfig> ReadHfConfig(const nlohmann::ordered_json& config);

// A token id, or a list of them; absent or null: none.
StatusOr<std::vector<int64_t>> ReadHfIds(const nlohmann::ordered_json& object,
                                         const char* key);

}  // namespace millrace::models
