// Files that sentence-transformers writes beside a model, which say how the
// rows of a text's tokens become a vector. INVALID_ARGUMENT for what is no
// JSON. Source: the modules Pooling, Normalize and Dense of
// sentence-transformers.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// Of 1_Pooling/config.json: "mean", "cls" (the first row), "max" or "last";
// UNIMPLEMENTED where it is none of them, or several together.
StatusOr<std::string> ReadPoolingMode(std::string_view json);

// Of modules.json: whether a vector is brought to length 1; UNIMPLEMENTED where
// a dense layer stands behind the pooling.
StatusOr<bool> ReadNormalizes(std::string_view json);

}  // namespace millrace::models
