// Status: how a failure travels. Anything a user, a file, the network or a
// device can cause is a Status; exceptions of libraries become one at the call
// that can throw.
//
//   StatusOr<Model> Load(std::string_view path) {
//     ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
//     if (file.size() < 24) {
//       return InvalidArgument("the file is cut short").At("path");
//     }
//     ...
//   }
//
// A message is a sentence with the offending value, the limit and the remedy.
// Immutable once returned; copies share one representation.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {

// The sixteen canonical codes of gRPC, with its numbers.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string_view message);

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  std::string_view message() const {
    return rep_ ? std::string_view(rep_->message) : std::string_view();
  }

  // The request field or setting at fault ("max_tokens"), empty if none.
  std::string_view field() const {
    return rep_ ? std::string_view(rep_->field) : std::string_view();
  }
  // A stable word for programs ("context_length_exceeded"), empty if none.
  std::string_view reason() const {
    return rep_ ? std::string_view(rep_->reason) : std::string_view();
  }
  // When trying again may help, in milliseconds; 0 says nothing.
  int64_t retry_after_ms() const { return rep_ ? rep_->retry_after_ms : 0; }

  // Copies of this status with one detail more. No effect on OK.
  Status At(std::string_view field) const;
  Status Because(std::string_view reason) const;
  Status RetryAfterMs(int64_t ms) const;
  Status Prefixed(std::string_view context) const;  // "context: message"

  // "INVALID_ARGUMENT: message", for logs and tests.
  std::string ToString() const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
    std::string field;
    std::string reason;
    int64_t retry_after_ms = 0;
  };
  template <typename Edit>
  Status With(Edit edit) const;

  std::shared_ptr<const Rep> rep_;  // shared by copies; null means OK
};

inline Status OkStatus() { return Status(); }
Status Cancelled(std::string_view message);
Status InvalidArgument(std::string_view message);
Status DeadlineExceeded(std::string_view message);
Status NotFound(std::string_view message);
Status AlreadyExists(std::string_view message);
Status ResourceExhausted(std::string_view message);
Status FailedPrecondition(std::string_view message);
Status OutOfRange(std::string_view message);
Status Unimplemented(std::string_view message);
Status Internal(std::string_view message);
Status Unavailable(std::string_view message);
Status DataLoss(std::string_view message);
Status Unauthenticated(std::string_view message);

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT
    if (status_.ok()) status_ = Internal("StatusOr made from OK, no value");
  }
  template <typename U = T, typename = std::enable_if_t<
                                std::is_constructible_v<T, U&&> &&
                                !std::is_same_v<std::decay_t<U>, StatusOr> &&
                                !std::is_same_v<std::decay_t<U>, Status>>>
  StatusOr(U&& value) : value_(std::forward<U>(value)) {}  // NOLINT

  bool ok() const { return status_.ok(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  // Only when ok(); anything else is our bug and stops the process.
  T& value() & { return Checked(), *value_; }
  const T& value() const& { return Checked(), *value_; }
  T&& value() && { return Checked(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Checked() const {
    if (ok()) return;
    std::fprintf(stderr, "value() of a failed StatusOr: %s\n",
                 status_.ToString().c_str());
    std::abort();
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace millrace

#define RETURN_IF_ERROR(expr)                                               \
  do {                                                                      \
    if (::millrace::Status failed_ = (expr); !failed_.ok()) return failed_; \
  } while (false)

#define MILLRACE_CONCAT_(a, b) a##b
#define MILLRACE_CONCAT(a, b) MILLRACE_CONCAT_(a, b)
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_(MILLRACE_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_(tmp, lhs, expr)        \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()

// States one of our own invariants. A false one is a bug of ours: the process
// stops with the sentence.
#define CHECK(condition, why)                                         \
  do {                                                                \
    if (!(condition)) [[unlikely]] {                                  \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s: %s\n", __FILE__, \
                   __LINE__, #condition, why);                        \
      std::abort();                                                   \
    }                                                                 \
  } while (false)
