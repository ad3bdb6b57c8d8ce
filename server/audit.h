// The audit log: one JSON line for each management call: the caller, what it
// asked for and how it ended, refused calls too.
//
//   {"time":"2026-03-01T10:00:00.123Z","key":"ops","tenant":"default",
//    "peer":"10.0.0.7:40112","action":"POST /v2/repository/models/m/load",
//    "result":"200","request_id":"req-…"}
//
// Lines go to a file, or as events "audit" to the log. The file is opened for
// each line, so it may be moved away at any time. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "server/auth.h"

namespace millrace::server {

struct AuditEntry {
  const Caller* caller = nullptr;  // null: unknown key
  std::string_view peer;
  std::string_view action;  // "POST /path", "grpc/Method"
  std::string_view model;   // where the action does not name it
  std::string_view result;  // HTTP status or gRPC code
  std::string_view request_id;
  std::string_view error;  // empty: none
};

class AuditLog {
 public:
  // FAILED_PRECONDITION when the file cannot be written; an empty path means
  // the log.
  static StatusOr<std::unique_ptr<AuditLog>> Open(std::string path);

  void Write(const AuditEntry& entry);

 private:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  Mutex mu_;  // lines stay whole
};

}  // namespace millrace::server
