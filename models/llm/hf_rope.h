// The rotary positions of a Hugging Face folder, under the keys of GGUF files.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "models/llm/hf_config.h"

namespace millrace::models {

// Adds keys "rope.…" and the factors of pairs to `out`, which has the other
// keys already. INVALID_ARGUMENT or UNIMPLEMENTED names the key.
Status ReadHfRope(const nlohmann::ordered_json& config, HfConfig& out);

}  // namespace millrace::models
