// Lines for a log whose reader may stop reading: a pipe that is full, a
// terminal that is held. A write to one of those waits for ever, and so would
// every thread that logs. This waits a moment, then drops lines and counts
// them.
//
//   LineWriter writer(STDERR_FILENO);
//   if (!writer.Write("a line\n")) ...    // dropped
//   writer.TakeLost();                     // how many were, up to now
//
// Thread-safe; lines do not mix.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "config/base/mutex.h"

namespace millrace {

class LineWriter {
 public:
  // `patience`: how long one line waits for its reader. After a line was
  // dropped, none waits until `pause` has passed, so that a slow reader costs
  // the threads that log a small share of their time.
  explicit LineWriter(
      int fd,
      std::chrono::milliseconds patience = std::chrono::milliseconds(100),
      std::chrono::milliseconds pause = std::chrono::milliseconds(5000))
      : fd_(fd), patience_(patience), pause_(pause) {}

  // False: the line, or its end, was dropped.
  bool Write(std::string_view line) EXCLUDES(mu_);

  // Lines dropped since the last call; 0 while the next would be dropped, too,
  // so that a line with the number is not dropped.
  int64_t TakeLost() EXCLUDES(mu_);

 private:
  bool WriteAll(std::string_view text) REQUIRES(mu_);
  // Waits until a piece may be written without waiting.
  bool IsReady(std::chrono::milliseconds timeout) const;

  const int fd_;
  const std::chrono::milliseconds patience_;
  const std::chrono::milliseconds pause_;
  Mutex mu_;
  int64_t num_lost_ GUARDED_BY(mu_) = 0;
  bool in_line_ GUARDED_BY(mu_) = false;  // a line was begun and not ended
  std::chrono::steady_clock::time_point patient_from_ GUARDED_BY(mu_);
};

}  // namespace millrace
