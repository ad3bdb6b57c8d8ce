// The part of `millrace inspect` that shows how a model is cut for a group.
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "models/llm/source.h"

namespace millrace::server {

// Prints which numbers of processes a model can be cut for, and how each tensor
// is cut for `size` of them; or the error of a size that does not fit.
Status PrintSharding(const models::ModelSource& source, int32_t size);

}  // namespace millrace::server
