// A language model's handler that has a share of its requests completed by
// shadows (config/shadow_settings.h) once their completions have gone out, as
// shadow_handler.h does it for graphs.
//
// A request without a seed gets one, so that both draw alike. A shadow is equal
// when all its texts are, with what is content, reasoning and calls of tools in
// them. Completions that failed or were cut off by their client have no shadow.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "handlers/handler.h"
#include "handlers/shadow/shadow_targets.h"

namespace millrace::handlers {

// A completion as one text, in which kinds of pieces are marked.
class CollectedText {
 public:
  void Add(const OutputDelta& delta);
  std::string Take() { return std::move(text_); }

 private:
  DeltaKind kind_ = DeltaKind::kContent;
  int32_t call_idx_ = 0;
  std::string text_;
};

// Of shadows, and of the lines of batches: neither has shadows.
inline constexpr int32_t kLowestTextPriority =
    std::numeric_limits<int32_t>::max();

// Thread-safe.
std::unique_ptr<GenerateHandler> MakeShadowTextHandler(
    std::unique_ptr<GenerateHandler> inner, const ShadowParts& parts);

}  // namespace millrace::handlers
