#include "models/llm/cuda/step_graphs.h"

#include <algorithm>
#include <utility>

#include "config/base/log.h"

namespace millrace::models {

StepGraphs::Known& StepGraphs::Find(const std::vector<int64_t>& layout,
                                    bool* is_new) {
  const auto found = std::ranges::find(known_, layout, &Known::layout);
  *is_new = found == known_.end();
  if (!*is_new) {
    known_.splice(known_.begin(), known_, found);
  } else {
    if (known_.size() == kMostLayouts) known_.pop_back();
    known_.push_front({.layout = layout, .graph = {}, .marked = {}});
  }
  return known_.front();
}

Status StepGraphs::Run(const std::vector<int64_t>& layout,
                       const std::function<Status()>& launch, bool marked) {
  if (off_) return launch();
  bool is_new = false;
  Known& known = Find(layout, &is_new);
  if (is_new) return launch();
  CudaGraph& graph = marked ? known.marked : known.graph;
  if (!graph) {
    StatusOr<CudaGraph> captured = context_.Capture(launch);
    if (!captured.ok() && must_capture_) {
      return captured.status().Prefixed(
          "a step cannot be captured as a CUDA graph; say --enforce-eager at "
          "all ranks");
    }
    if (!captured.ok()) {
      LogWarning("a step cannot be captured, so there are no CUDA graphs",
                 {{"why", captured.status().message()}});
      off_ = true;
      known_.clear();
      return launch();
    }
    graph = std::move(captured).value();
  }
  return context_.Run(graph);
}

}  // namespace millrace::models
