// Lets a load survive that another process cuts a model's file short while it
// is mapped. The system signals that by SIGBUS at the first read behind the new
// end; in files that the guard's thread has mapped since it made the guard,
// such a read gets zeros instead, on every thread, and the guard knows that
// what was read is worthless.
//
//   TruncationGuard guard;
//   ... read mapped files ...
//   RETURN_IF_ERROR(guard.Check());
//
// A model whose files stay mapped while it is served keeps the cover that the
// guard of its load has made, and asks it after each run:
//
//   const auto cover = TruncationGuard::Cover();
//   ... compute ...
//   RETURN_IF_ERROR(cover->Check());
//
// In any other file SIGBUS ends the process, also while a guard exists: zeros
// in the weights of a running model would be silent wrong results. Guards may
// exist on several threads at once, and inside each other on one thread; all
// that exist fail when one file is cut. The handler of the process is set by
// the first guard and stays.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "config/base/status.h"

namespace millrace::models {

// The mappings of one guard, for as long as the guard or a model keeps it.
// Thread-safe.
class FileCover {
 public:
  FileCover() = default;
  ~FileCover();
  FileCover(const FileCover&) = delete;
  FileCover& operator=(const FileCover&) = delete;

  // DATA_LOSS for ever once one of the files was cut short and read there.
  Status Check() const;

  // Called by the signal handler.
  void CountCut() { num_cuts_.fetch_add(1, std::memory_order_relaxed); }

 private:
  // Relaxed: the handler runs on the thread that reads, and Check comes after
  // joins of the readers.
  std::atomic<int64_t> num_cuts_{0};
};

// Destroyed on the thread that made it.
class TruncationGuard {
 public:
  TruncationGuard();
  // Goes on with a cover, for what is done later for the same model; null makes
  // a new one.
  explicit TruncationGuard(std::shared_ptr<FileCover> cover);
  ~TruncationGuard();
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;

  // DATA_LOSS when a file was cut short since the guard was made.
  Status Check() const;

  // That of this thread's innermost guard; null without one.
  static std::shared_ptr<FileCover> Cover();

  // A mapping that this thread has made, and one that is about to end. Without
  // a guard on this thread, or with 4096 guarded mappings already, AddMapping
  // has no effect.
  static void AddMapping(std::span<const std::byte> bytes);
  static void RemoveMapping(std::span<const std::byte> bytes);

 private:
  const int64_t cuts_before_;
  const std::shared_ptr<FileCover> cover_;  // shared with served models
  const TruncationGuard* const outer_;      // of this thread
};

}  // namespace millrace::models
