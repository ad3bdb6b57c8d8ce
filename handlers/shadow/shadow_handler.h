// A graph's handler that has a share of its requests computed by shadows
// (config/shadow_settings.h) once their answers have gone out. Whatever becomes
// of a shadow, the real request neither waits for it nor learns of it: its cost
// are handles of its tensors and a place in a queue.
#pragma once

#include <memory>

#include "handlers/handler.h"
#include "handlers/shadow/shadow_targets.h"

namespace millrace::handlers {

// Thread-safe. A target that is the model and version itself is left out.
std::unique_ptr<TensorHandler> MakeShadowHandler(
    std::unique_ptr<TensorHandler> inner, const ShadowParts& parts);

}  // namespace millrace::handlers
