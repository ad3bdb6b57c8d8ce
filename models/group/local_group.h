// A group whose ranks are threads of this process: what tests hold other groups
// and sharded models against.
//
//   auto ranks = MakeLocalGroup(2);   // give each thread one
#pragma once

#include <memory>
#include <vector>

#include "models/group/group.h"

namespace millrace::models {

// The ranks in their order; each may outlive the others. A rank that is
// destroyed breaks the group: calls that wait for it end with UNAVAILABLE.
std::vector<std::unique_ptr<Group>> MakeLocalGroup(int32_t size);

}  // namespace millrace::models
