// The index of weights that lie in several files: model.safetensors.index.json,
// whose "weight_map" places each tensor in a file of the same folder.
#pragma once

#include <set>
#include <string>

#include "config/base/status.h"

namespace millrace::models {

// The names of the files, each once. INVALID_ARGUMENT names the index: it
// cannot be read, is larger than 64 MiB, or places a tensor elsewhere.
StatusOr<std::set<std::string>> FilesOfIndex(const std::string& path);

}  // namespace millrace::models
