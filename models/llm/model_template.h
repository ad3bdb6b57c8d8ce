// The chat template of a model: its own, or one that a setting names.
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "models/llm/source.h"
#include "models/text/chat_template.h"

namespace millrace::models {

// Null where the model has none, or one that cannot be used, which is a line in
// the log. `override_path`: a file with another one; empty: none. NOT_FOUND and
// INVALID_ARGUMENT are of that file.
StatusOr<std::shared_ptr<const ChatTemplate>> LoadModelTemplate(
    const ModelSource& source, const std::string& override_path);

}  // namespace millrace::models
