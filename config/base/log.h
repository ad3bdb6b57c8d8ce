// One event per line, with fields. spdlog stands behind; its headers stay in
// the source file.
//
//   LogInfo("model loaded", {{"model", id}, {"seconds", 0.41}});
//   => 2026-03-01T10:00:00.123Z INFO  model loaded model=smollm2 seconds=0.41
//   or, with the JSON format, the same as one JSON object per line.
//
// Lines go to stderr. Thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "config/base/status.h"

namespace millrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat { kText, kJson };

// A name and a value already turned into text; numbers and booleans stay bare
// in JSON.
class LogField {
 public:
  LogField(std::string_view field, std::string_view text)
      : name(field), value(text), quoted(true) {}
  LogField(std::string_view field, const char* text)
      : LogField(field, std::string_view(text)) {}
  LogField(std::string_view field, const std::string& text)
      : LogField(field, std::string_view(text)) {}
  LogField(std::string_view field, bool flag)
      : name(field), value(flag ? "true" : "false"), quoted(false) {}
  LogField(std::string_view field, double number);
  template <typename Int,
            typename = std::enable_if_t<std::is_integral_v<Int> &&
                                        !std::is_same_v<Int, bool>>>
  LogField(std::string_view field, Int number)
      : name(field), value(std::to_string(number)), quoted(false) {}

  std::string name;
  std::string value;
  bool quoted;
};
using LogFields = std::initializer_list<LogField>;

// Fields of a line, some of which may be absent.
//
//   LogFieldList fields;
//   fields.Add("model", id);
//   if (status != 0) fields.Add("status", status);
//   LogInfo("request", fields);
class LogFieldList {
 public:
  template <typename Value>
  void Add(std::string_view field, const Value& value) {
    all_.emplace_back(field, value);
  }
  // Left out when it is empty.
  void AddText(std::string_view field, std::string_view text) {
    if (!text.empty()) all_.emplace_back(field, text);
  }
  const std::vector<LogField>& all() const { return all_; }

 private:
  std::vector<LogField> all_;
};

// Called once at start-up; before it, text at level info.
void SetUpLog(LogLevel level, LogFormat format);
// "debug", "info", "warning", "error", "off"; "text", "json".
StatusOr<LogLevel> ParseLogLevel(std::string_view name);
StatusOr<LogFormat> ParseLogFormat(std::string_view name);

// Keeps `text` in the last line of the terminal, below the log's lines, until
// another call; an empty one clears it. Call it only when stderr is a terminal.
void ShowStatusLine(std::string_view text);

// The level alone, at any time.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view event, LogFields fields = {});
void Log(LogLevel level, std::string_view event, const LogFieldList& fields);
inline void LogDebug(std::string_view event, LogFields fields = {}) {
  if (LogEnabled(LogLevel::kDebug)) Log(LogLevel::kDebug, event, fields);
}
inline void LogInfo(std::string_view event, LogFields fields = {}) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogInfo(std::string_view event, const LogFieldList& fields) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogWarning(std::string_view event, LogFields fields = {}) {
  Log(LogLevel::kWarning, event, fields);
}
inline void LogError(std::string_view event, LogFields fields = {}) {
  Log(LogLevel::kError, event, fields);
}

}  // namespace millrace
