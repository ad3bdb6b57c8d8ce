// Whether a request would get a place in time for its deadline: asked when
// little of it is known, so that nothing is read or decoded to be refused.
#pragma once

#include "config/base/clock.h"
#include "config/base/status.h"
#include "handlers/handler.h"

namespace millrace::handlers {

// A handler that estimates when a request would be answered.
class TimedHandler : public TensorHandler {
 public:
  // The refusal that Start would give to a request of this deadline that came
  // now; kNever: it has none.
  virtual Status HasPlaceBy(Clock::Time deadline) const = 0;
  Status HasPlace() const override { return HasPlaceBy(kNever); }
};

// Of any handler; those that make no estimate look for a place alone.
inline Status HasPlaceBy(const TensorHandler& handler, Clock::Time deadline) {
  const auto* timed = dynamic_cast<const TimedHandler*>(&handler);
  return timed == nullptr ? handler.HasPlace() : timed->HasPlaceBy(deadline);
}

// OK where there is no deadline or no estimate: what Start refuses besides is
// left to it.
inline Status IsInTime(const TensorHandler& handler, Clock::Time deadline) {
  const auto* timed = dynamic_cast<const TimedHandler*>(&handler);
  return timed == nullptr || deadline == kNever ? OkStatus()
                                                : timed->HasPlaceBy(deadline);
}

}  // namespace millrace::handlers
