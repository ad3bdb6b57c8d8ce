// When the parts of a stream's work ran, by marks between them.
//
//   RETURN_IF_ERROR(timer.Begin());  // on an idle stream
//   ... ask for the first part ...
//   RETURN_IF_ERROR(timer.Mark());
//   ... ask for the second part ...
//   RETURN_IF_ERROR(timer.Mark());
//   RETURN_IF_ERROR(context.Wait());
//   ASSIGN_OR_RETURN(const auto times, timer.Times());  // three
//
// Marks may be captured with the work between them:
//
//   RETURN_IF_ERROR(timer.Reserve(n));   // before the capture
//   RETURN_IF_ERROR(timer.Begin());
//   RETURN_IF_ERROR(context.Run(graph)); // that has n marks
//   timer.Ran(n);
//
// Used by the context's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "config/base/status.h"
#include "models/gpu/cuda_context.h"

namespace millrace::models {

class StreamTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `context` outlives this.
  explicit StreamTimer(CudaContext& context) : context_(context) {}

  // Forgets the marks before and sets the first one.
  Status Begin();
  Status Mark();
  // Makes what `marks` marks behind Begin's need, so that none is made while
  // the stream is captured.
  Status Reserve(size_t marks);
  // A graph has set so many marks behind Begin's, which were captured as the
  // first ones behind it.
  void Ran(size_t marks);
  // When the stream passed the marks, once it has. On the host's clock, on
  // which the first mark is when Begin was called: the device began some
  // microseconds later, so all times are that much too early.
  StatusOr<std::vector<Time>> Times();

 private:
  CudaContext& context_;
  std::vector<CudaEvent> events_;  // kept for the next time
  size_t num_marks_ = 0;
  Time begun_;
};

}  // namespace millrace::models
