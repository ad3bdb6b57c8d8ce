#include "server/log_settings.h"

#include "config/base/log.h"

namespace millrace::server {

LogControl::LogControl() {
  settings_.error = LogEnabled(LogLevel::kError);
  settings_.warning = LogEnabled(LogLevel::kWarning);
  settings_.info = LogEnabled(LogLevel::kInfo);
  settings_.verbose = LogEnabled(LogLevel::kDebug) ? 1 : 0;
}

LogSettings LogControl::Get() const {
  MutexLock lock(mu_);
  return settings_;
}

Status LogControl::Set(const LogSettings& settings) {
  if (settings.format != "default" && settings.format != "ISO8601") {
    return InvalidArgument("log_format is '" + settings.format +
                           "' but must be \"default\" or \"ISO8601\"")
        .At("log_format");
  }
  MutexLock lock(mu_);
  settings_ = settings;
  SetLogLevel(settings.verbose > 0 ? LogLevel::kDebug
              : !settings.error    ? LogLevel::kOff
              : !settings.warning  ? LogLevel::kError
              : !settings.info     ? LogLevel::kWarning
                                   : LogLevel::kInfo);
  return OkStatus();
}

}  // namespace millrace::server
