// Lets a load survive that another process cuts a model's file short while it
// is mapped. The system tells that by SIGBUS at the first read behind the new
// end; in files that the guard's thread has mapped since it made the guard,
// such a read gets zeros instead, on every thread, and the guard knows that
// what was read is worthless.
//
//   TruncationGuard guard;
//   ... read mapped files ...
//   RETURN_IF_ERROR(guard.Check());
//
// In any other file SIGBUS ends the process, also while a guard exists: zeros
// in the weights of a running model would be silent wrong results. Guards may
// exist on several threads at once, and inside each other on one thread; all
// that exist fail when one file is cut. The handler of the process is set by
// the first guard and stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "config/base/status.h"

namespace millrace::models {

// Destroyed on the thread that made it.
class TruncationGuard {
 public:
  TruncationGuard();
  ~TruncationGuard();
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;

  // DATA_LOSS when a file was cut short since the guard was made.
  Status Check() const;

  // A mapping that this thread has made, and one that is about to end. Without
  // a guard on this thread, or with 4096 guarded mappings already, AddMapping
  // has no effect.
  static void AddMapping(std::span<const std::byte> bytes);
  static void RemoveMapping(std::span<const std::byte> bytes);

 private:
  const int64_t cuts_before_;
  const TruncationGuard* const outer_;  // of this thread
};

}  // namespace millrace::models
