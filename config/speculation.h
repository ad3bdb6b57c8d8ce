// How next tokens are drafted: what a method of "auto" stands for, and which
// settings contradict each other.
#pragma once

#include "config/base/status.h"
#include "config/schema.h"

namespace millrace::config {

enum class SpeculativeMethod { kNone, kNgram, kDraftModel };

// INVALID_ARGUMENT for a method without the model it needs, or with one it has
// no use for. "none" turns off whatever else is set.
StatusOr<SpeculativeMethod> SpeculativeMethodOf(const LlmSettings& llm);

}  // namespace millrace::config
