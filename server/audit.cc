#include "server/audit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "config/base/log.h"

namespace millrace::server {
namespace {

// The file is for the operator alone.
constexpr mode_t kOwnerOnly = 0600;

// RFC 3339, UTC.
std::string TimeText() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      now.time_since_epoch())
                      .count() %
                  1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  const size_t size = std::strftime(text, sizeof text, "%FT%T", &utc);
  std::snprintf(text + size, sizeof text - size, ".%03dZ",
                static_cast<int>(ms));
  return text;
}

Status Append(const std::string& path, std::string_view line) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kOwnerOnly);
  const bool written = fd >= 0 && write(fd, line.data(), line.size()) ==
                                      static_cast<ssize_t>(line.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (written) return OkStatus();
  return FailedPrecondition("audit_log_file is '" + path +
                            "', which cannot be written (" +
                            std::strerror(error) +
                            "); check its path and permissions, and the disk")
      .At("audit_log_file");
}

}  // namespace

StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(std::string path) {
  if (!path.empty()) RETURN_IF_ERROR(Append(path, ""));
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(path)));
}

void AuditLog::Write(const AuditEntry& entry) {
  const std::string_view key =
      entry.caller == nullptr ? "" : std::string_view(entry.caller->id);
  const std::string_view tenant =
      entry.caller == nullptr ? std::string_view()
                              : std::string_view(entry.caller->tenant->name());
  if (path_.empty()) {
    LogFieldList fields;
    fields.Add("key", key);
    fields.Add("tenant", tenant);
    fields.Add("peer", entry.peer);
    fields.AddText("action", entry.action);
    fields.AddText("model", entry.model);
    fields.Add("result", entry.result);
    fields.Add("id", entry.request_id);
    fields.AddText("error", entry.error);
    LogInfo("audit", fields);
    return;
  }
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  const auto add = [&line](const char* name, std::string_view value) {
    if (!value.empty()) line[name] = std::string(value);
  };
  line["time"] = TimeText();
  line["key"] = std::string(key);
  add("tenant", tenant);
  add("peer", entry.peer);
  add("action", entry.action);
  add("model", entry.model);
  add("result", entry.result);
  add("request_id", entry.request_id);
  add("error", entry.error);
  MutexLock lock(mu_);
  const Status written = Append(path_, DumpJson(line) + "\n");
  if (!written.ok()) {
    LogError("audit line lost",
             {{"error", written.message()}, {"action", entry.action}});
  }
}

}  // namespace millrace::server
