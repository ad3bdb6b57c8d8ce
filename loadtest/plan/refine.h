// Corrects the prices of a server model until a simulation of the measured
// closed loops shows their times: batches that fill and drain are no means, and
// the equations of plan/fit.h know means alone.
#pragma once

#include <vector>

#include "loadtest/plan/fit.h"

namespace millrace::loadtest {

// With the point's tokens_per_step, of `concurrency` users who each send their
// next request when the last one has ended.
struct ClosedLoopTimes {
  double ttft_ms = 0;  // median
  double tpot_ms = 0;  // mean
};
ClosedLoopTimes SimulateClosedLoop(const ServerModel& model,
                                   const FitPoint& point);

// Squared relative errors of both times at the closed loops among `points`,
// each divided by its users.
double ClosedLoopError(const std::vector<FitPoint>& points,
                       const ServerModel& model);

// The model with step_base, prefill_token, decode_sequence and prompt_step such
// that the squared relative errors of both times at the closed loops among
// `points` are least (Nelder and Mead 1965). request_overhead is what the
// points tell; where they tell nothing, prompt_step is 0 and it is searched
// instead. attended_key and the limits stay.
ServerModel RefineServerModel(const std::vector<FitPoint>& points,
                              const ServerModel& start);

}  // namespace millrace::loadtest
