// What stands beside the tensors of a LoRA adapter: how it is scaled, and what
// else it does, which is refused.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/llm/lora.h"

namespace millrace::models {

struct LoraScale {
  double alpha = 0;   // 0: the scale is 1
  int64_t rank = 0;   // of all matrices; 0: each has its own
  bool root = false;  // divided by the root of the rank (Kalajdzievski 2023)

  float Of(int64_t of_rank) const {
    if (alpha == 0) return 1;
    const auto r = static_cast<double>(of_rank);
    return static_cast<float>(alpha / (root ? std::sqrt(r) : r));
  }
};

// adapter_config.json of a folder, as PEFT writes it.
StatusOr<LoraScale> ReadPeftConfig(const std::string& folder);
// The same from text.
StatusOr<LoraScale> ParsePeftConfig(std::string_view json);

// The keys of a GGUF file, which must be an adapter for the base's family.
StatusOr<LoraScale> ReadGgufScale(const GgufFile& file, const LoraBase& base);

}  // namespace millrace::models
