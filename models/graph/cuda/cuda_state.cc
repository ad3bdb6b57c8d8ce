#include "models/graph/cuda/cuda_state.h"

#include <algorithm>
#include <utility>

#include "config/base/log.h"

namespace millrace::models::graph {

StatusOr<std::byte*> CudaState::Arena(int64_t bytes) {
  if (bytes <= arena_bytes_ && arena_.data() != nullptr) return arena_.data();
  captured_.clear();
  arena_bytes_ = 0;
  arena_ = CudaBuffer();  // first: both may not fit
  ASSIGN_OR_RETURN(arena_,
                   context_->Allocate(std::max<int64_t>(bytes, 1),
                                      "what lies between a graph's layers"));
  arena_bytes_ = bytes;
  return arena_.data();
}

StatusOr<std::byte*> CudaState::Staging(int64_t bytes) {
  if (bytes <= staging_bytes_ && staging_.data() != nullptr) {
    return staging_.data();
  }
  captured_.clear();
  staging_bytes_ = 0;
  staging_ = CudaBuffer();
  ASSIGN_OR_RETURN(staging_,
                   context_->AllocateHost(std::max<int64_t>(bytes, 1),
                                          "transfers of a graph's inputs"));
  staging_bytes_ = bytes;
  return staging_.data();
}

Status CudaState::RunOrReplay(int64_t plan,
                              const std::function<Status()>& ask) {
  constexpr size_t kMostPlans = 64;
  // A capture that found no memory may succeed in a later run. After this many
  // failures none is tried again, as each attempt costs time.
  constexpr int kMostFailures = 3;
  constexpr int kRunsBetween = 16;
  const auto found =
      std::find_if(captured_.begin(), captured_.end(),
                   [&](const Captured& each) { return each.plan == plan; });
  if (found == captured_.end()) {
    captured_.push_front({.plan = plan});
    if (captured_.size() > kMostPlans) captured_.pop_back();
    return ask();
  }
  captured_.splice(captured_.begin(), captured_, found);
  Captured& own = captured_.front();
  if (own.graph) return context_->Run(own.graph);
  if (own.failures == kMostFailures) return ask();
  if (own.runs_before_capture > 0) {
    --own.runs_before_capture;
    return ask();
  }
  StatusOr<CudaGraph> captured = context_->Capture(ask);
  if (!captured.ok()) {
    own.runs_before_capture = kRunsBetween;
    const bool is_last = ++own.failures == kMostFailures;
    LogWarning(is_last
                   ? "a plan was not captured and is no CUDA graph from now on"
                   : "a plan was not captured, which is tried again later",
               {{"why", captured.status().message()}});
    return ask();  // nothing of it has run
  }
  own.graph = *std::move(captured);
  return context_->Run(own.graph);
}

}  // namespace millrace::models::graph
