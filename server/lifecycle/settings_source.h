// Where the models of a server come from, as its settings say.
#pragma once

#include <memory>

#include "config/base/status.h"
#include "config/schema.h"
#include "server/lifecycle/model_source.h"

namespace millrace::server {

// The directory of model_repository, or the models that settings name, each of
// one version. INVALID_ARGUMENT at "model_repository" where both are given.
StatusOr<std::unique_ptr<ModelSource>> SourceOf(
    const config::Settings& settings);

}  // namespace millrace::server
