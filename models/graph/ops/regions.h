// Shared by position-sensitive pools of regions: which channel feeds which
// cell. channel (d * height + i) * width + j is seen by cell (i, j) of result
// channel d alone (R-FCN, Dai et al. 2016, section 2).
#pragma once

#include <cstdint>

#include "config/base/status.h"

namespace millrace::models::graph {

// Channels of the result, of height x width cells. INVALID_ARGUMENT: they do
// not share x's evenly.
StatusOr<int64_t> ChannelsOfCells(int64_t channels, int64_t height,
                                  int64_t width);

}  // namespace millrace::models::graph
