// One line on the terminal with the progress of a phase. Shows nothing where
// the standard error output is no terminal.
#pragma once

#include <cstdint>
#include <string>

#include "loadtest/worker.h"

namespace millrace::loadtest {

class LiveLine {
 public:
  // `phase` and `progress` outlive the line.
  LiveLine(bool wanted, std::string name, const Phase& phase,
           const Progress& progress);

  void Update(Time now);  // draws twice a second at most
  void Clear();

 private:
  const bool shown_;
  const std::string name_;
  const Phase& phase_;
  const Progress& progress_;
  Time last_ = {};
  int64_t last_ok_ = 0;
  int64_t last_tokens_ = 0;
};

}  // namespace millrace::loadtest
