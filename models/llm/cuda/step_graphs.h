// CUDA graphs of steps. Steps whose messages have the same layout launch the
// same kernels with the same arguments, so such a step is captured once and
// then started by one call.
//
// The first step of a layout is launched kernel by kernel, which also loads
// them: nothing is loaded while one is captured. At most kMostLayouts are
// known; the one that was used longest ago makes room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "config/base/status.h"
#include "models/gpu/cuda_context.h"

namespace millrace::models {

class StepGraphs {
 public:
  static constexpr size_t kMostLayouts = 64;

  // `context` outlives this. `must_capture`: Run fails where a step cannot be
  // captured, because the other ranks of a group do capture it.
  explicit StepGraphs(CudaContext& context, bool must_capture = false)
      : context_(context), must_capture_(must_capture) {}

  // Starts what `launch` asks of the stream, which depends on the layout alone
  // and on `marked`: then there are marks between a step's phases, which is
  // another graph of the same step.
  // When it cannot be captured a line in the log says why, and all steps are
  // launched kernel by kernel from then on.
  Status Run(const std::vector<int64_t>& layout,
             const std::function<Status()>& launch, bool marked = false);

 private:
  struct Known {
    std::vector<int64_t> layout;
    CudaGraph graph;   // from the second step on
    CudaGraph marked;  // likewise
  };
  // Now the first of known_; a new one where there was none.
  Known& Find(const std::vector<int64_t>& layout, bool* is_new);

  CudaContext& context_;
  const bool must_capture_;
  std::list<Known> known_;  // the last used first
  bool off_ = false;
};

}  // namespace millrace::models
