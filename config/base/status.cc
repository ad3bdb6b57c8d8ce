// Status keeps its rare part behind one shared pointer, so that OK costs a
// null pointer and a copy costs a counter.
#include "config/base/status.h"

namespace millrace {

std::string_view StatusCodeName(StatusCode code) {
  static constexpr std::string_view kNames[] = {
      "OK",
      "CANCELLED",
      "UNKNOWN",
      "INVALID_ARGUMENT",
      "DEADLINE_EXCEEDED",
      "NOT_FOUND",
      "ALREADY_EXISTS",
      "PERMISSION_DENIED",
      "RESOURCE_EXHAUSTED",
      "FAILED_PRECONDITION",
      "ABORTED",
      "OUT_OF_RANGE",
      "UNIMPLEMENTED",
      "INTERNAL",
      "UNAVAILABLE",
      "DATA_LOSS",
      "UNAUTHENTICATED",
  };
  return kNames[static_cast<int>(code)];
}

Status::Status(StatusCode code, std::string_view message) {
  if (code == StatusCode::kOk) return;
  rep_ = std::make_shared<const Rep>(Rep{code, std::string(message), {}, {}});
}

template <typename Edit>
Status Status::With(Edit edit) const {
  if (ok()) return *this;
  Rep rep = *rep_;
  edit(rep);
  Status out;
  out.rep_ = std::make_shared<const Rep>(std::move(rep));
  return out;
}

Status Status::At(std::string_view field) const {
  return With([&](Rep& rep) { rep.field = field; });
}

Status Status::Because(std::string_view reason) const {
  return With([&](Rep& rep) { rep.reason = reason; });
}

Status Status::RetryAfterMs(int64_t ms) const {
  return With([&](Rep& rep) { rep.retry_after_ms = ms; });
}

Status Status::Prefixed(std::string_view context) const {
  return With([&](Rep& rep) {
    rep.message = std::string(context) + ": " + rep.message;
  });
}

std::string Status::ToString() const {
  std::string out(StatusCodeName(code()));
  if (!ok()) out.append(": ").append(message());
  return out;
}

Status Cancelled(std::string_view m) { return {StatusCode::kCancelled, m}; }
Status InvalidArgument(std::string_view m) {
  return {StatusCode::kInvalidArgument, m};
}
Status DeadlineExceeded(std::string_view m) {
  return {StatusCode::kDeadlineExceeded, m};
}
Status NotFound(std::string_view m) { return {StatusCode::kNotFound, m}; }
Status AlreadyExists(std::string_view m) {
  return {StatusCode::kAlreadyExists, m};
}
Status ResourceExhausted(std::string_view m) {
  return {StatusCode::kResourceExhausted, m};
}
Status FailedPrecondition(std::string_view m) {
  return {StatusCode::kFailedPrecondition, m};
}
Status OutOfRange(std::string_view m) { return {StatusCode::kOutOfRange, m}; }
Status Unimplemented(std::string_view m) {
  return {StatusCode::kUnimplemented, m};
}
Status Internal(std::string_view m) { return {StatusCode::kInternal, m}; }
Status Unavailable(std::string_view m) { return {StatusCode::kUnavailable, m}; }
Status DataLoss(std::string_view m) { return {StatusCode::kDataLoss, m}; }
Status Unauthenticated(std::string_view m) {
  return {StatusCode::kUnauthenticated, m};
}

}  // namespace millrace
