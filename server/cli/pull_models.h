// Models that `serve` is given as addresses, and checksums of model files.
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"

namespace millrace::server {

// Replaces each address by the path of what was pulled; pulls what the cache
// lacks only if `may_pull`.
Status PullModels(bool may_pull, std::vector<config::ModelSettings>* models);

// One SHA-256 for each model, in the same order; none: nothing is checked.
Status CheckSums(const std::vector<std::string>& sums,
                 const std::vector<config::ModelSettings>& models);

}  // namespace millrace::server
