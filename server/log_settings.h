// The log's settings as Triton's logging extension reads and changes them while
// the server runs (docs/protocol/extension_logging.md).
//
// Our log has one level: the switches of errors, warnings and info choose it,
// so that switching off warnings switches off info, too. Verbose levels from 1
// on are the level "debug". Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/mutex.h"
#include "config/base/status.h"

namespace millrace::server {

struct LogSettings {
  bool error = true;
  bool warning = true;
  bool info = true;
  uint32_t verbose = 0;
  std::string format = "default";  // or "ISO8601"; kept, lines are ISO 8601
};

class LogControl {
 public:
  // As the log is set up now.
  LogControl();

  LogSettings Get() const EXCLUDES(mu_);
  // INVALID_ARGUMENT for a format that is neither; then nothing is changed.
  Status Set(const LogSettings& settings) EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  LogSettings settings_ GUARDED_BY(mu_);
};

}  // namespace millrace::server
