// The whole line is made here; spdlog adds the time and writes it. It escapes
// nothing, so values are escaped before it sees them: a value can neither break
// a JSON line nor begin a line of its own.
#include "config/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <mutex>
#include <span>

#include "config/base/line_writer.h"
#include "config/base/mutex.h"
#include "config/base/utf8.h"

namespace millrace {
namespace {

constexpr std::string_view kLevelNames[] = {"debug", "info", "warning", "error",
                                            "off"};
constexpr std::string_view kLevelColumns[] = {"DEBUG", "INFO ", "WARN ",
                                              "ERROR", "OFF  "};
constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ",%v})";

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StderrSink(LineWriter& writer) : writer_(writer) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    writer_.Write({line.data(), line.size()});
  }
  void flush_() override {}

  LineWriter& writer_;
};

// Lives for the process: threads may log until the very end.
struct Sink {
  Sink() : logger("millrace", std::make_shared<StderrSink>(writer)) {
    Apply(LogLevel::kInfo, LogFormat::kText);
  }
  void Apply(LogLevel level, LogFormat new_format) {
    logger.set_level(spdlog::level::trace);  // levels are judged here
    logger.set_pattern(
        new_format == LogFormat::kJson ? kJsonPattern : kTextPattern,
        spdlog::pattern_time_type::utc);
    // Relaxed: a line that crosses a change may have either form.
    format.store(new_format, std::memory_order_relaxed);
    min_level.store(level, std::memory_order_relaxed);
  }
  LineWriter writer{STDERR_FILENO};
  spdlog::logger logger;
  std::atomic<LogFormat> format{LogFormat::kText};
  std::atomic<LogLevel> min_level{LogLevel::kInfo};

  Mutex status_mu;  // held while a line is written below which it stands
  std::string status GUARDED_BY(status_mu);
  // Relaxed: a line that crosses a change is drawn over, which the next mends.
  std::atomic<bool> has_status{false};
};

// To the beginning of the line, and clears it (ECMA-48, CR and EL).
constexpr char kClearLine[] = "\r\x1b[K";

Sink& TheSink() {
  static Sink& sink = *new Sink;
  return sink;
}

void AppendEscaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
}

void AppendQuoted(std::string& out, std::string_view text) {
  out += '"';
  if (IsValidUtf8(text)) {
    AppendEscaped(out, text);
  } else {
    AppendEscaped(out, ReplaceInvalidUtf8(text));
  }
  out += '"';
}

// A value that would blur where it ends is quoted.
bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7F || c == '"' || c == '=' || c == '\\') {
      return true;
    }
  }
  return !IsValidUtf8(value);
}

using Fields = std::span<const LogField>;

std::string TextLine(LogLevel level, std::string_view event, Fields fields) {
  std::string line(kLevelColumns[static_cast<int>(level)]);
  line += ' ';
  AppendEscaped(line, IsValidUtf8(event) ? std::string(event)
                                         : ReplaceInvalidUtf8(event));
  for (const LogField& field : fields) {
    line.append(" ").append(field.name).append("=");
    if (NeedsQuotes(field.value)) {
      AppendQuoted(line, field.value);
    } else {
      line += field.value;
    }
  }
  return line;
}

std::string JsonMembers(LogLevel level, std::string_view event, Fields fields) {
  std::string line = "\"level\":\"";
  line.append(kLevelNames[static_cast<int>(level)]).append("\",\"event\":");
  AppendQuoted(line, event);
  for (const LogField& field : fields) {
    line += ',';
    AppendQuoted(line, field.name);
    line += ':';
    if (field.quoted) {
      AppendQuoted(line, field.value);
    } else {
      line += field.value;
    }
  }
  return line;
}

}  // namespace

LogField::LogField(std::string_view field, double number)
    : name(field), quoted(!std::isfinite(number)) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), number);
  value.assign(text, end.ptr);
}

void SetUpLog(LogLevel level, LogFormat format) {
  TheSink().Apply(level, format);
}

void SetLogLevel(LogLevel level) {
  TheSink().min_level.store(level, std::memory_order_relaxed);
}

StatusOr<LogLevel> ParseLogLevel(std::string_view name) {
  for (int i = 0; i < 5; ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return InvalidArgument("log_level is '" + std::string(name) +
                         "'; use debug, info, warning, error or off")
      .At("log_level");
}

StatusOr<LogFormat> ParseLogFormat(std::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return InvalidArgument("log_format is '" + std::string(name) +
                         "'; use text or json")
      .At("log_format");
}

void ShowStatusLine(std::string_view text) {
  Sink& sink = TheSink();
  MutexLock lock(sink.status_mu);
  if (sink.status == text) return;
  sink.status = text;
  sink.has_status.store(!text.empty(), std::memory_order_relaxed);
  std::fputs((kClearLine + sink.status).c_str(), stderr);
}

bool LogEnabled(LogLevel level) {
  return level != LogLevel::kOff &&
         level >= TheSink().min_level.load(std::memory_order_relaxed);
}

namespace {

std::string Line(const Sink& sink, LogLevel level, std::string_view event,
                 Fields fields) {
  const bool json =
      sink.format.load(std::memory_order_relaxed) == LogFormat::kJson;
  return json ? JsonMembers(level, event, fields)
              : TextLine(level, event, fields);
}

void Write(LogLevel level, std::string_view event, Fields fields) {
  if (!LogEnabled(level)) return;
  Sink& sink = TheSink();
  if (const int64_t lost = sink.writer.TakeLost(); lost > 0) {
    const LogField told[] = {{"lines", lost},
                             {"why", "their reader did not take them"}};
    sink.logger.log(spdlog::level::info,
                    Line(sink, LogLevel::kWarning, "log lines lost", told));
  }
  const std::string line = Line(sink, level, event, fields);
  if (!sink.has_status.load(std::memory_order_relaxed)) {
    sink.logger.log(spdlog::level::info, line);
    return;
  }
  MutexLock lock(sink.status_mu);
  std::fputs(kClearLine, stderr);
  sink.logger.log(spdlog::level::info, line);
  std::fputs(sink.status.c_str(), stderr);
}

}  // namespace

void Log(LogLevel level, std::string_view event, LogFields fields) {
  Write(level, event, Fields(fields.begin(), fields.size()));
}

void Log(LogLevel level, std::string_view event, const LogFieldList& fields) {
  Write(level, event, fields.all());
}

}  // namespace millrace
