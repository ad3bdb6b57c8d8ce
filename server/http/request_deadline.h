// The time that a request gives itself, and whether that is enough.
#pragma once

#include "config/base/clock.h"
#include "config/base/status.h"
#include "server/http/message.h"
#include "server/http/router.h"
#include "server/http/site.h"

namespace millrace::server::http {

// From X-Request-Timeout-Ms, counted from `accepted`, when the request's first
// byte came; kNever without it. INVALID_ARGUMENT for what is no number of
// milliseconds or too large a one.
StatusOr<Clock::Time> ReadDeadline(const HttpRequest& head,
                                   Clock::Time accepted);

// oip_routes.cc: the refusal of a request to compute tensors that would be
// answered too late, told by its head: its body is not read for that. OK where
// it names no deadline, for other routes, and where more than the head decides:
// the route's own checks follow.
Status CheckInTime(const Site& site, const RouteMatch& match,
                   const HttpRequest& head, Clock::Time accepted);

}  // namespace millrace::server::http
