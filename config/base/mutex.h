// std::mutex with clang's thread-safety annotations, which g++ ignores and the
// fuzz build (clang) checks: data says which mutex guards it, methods say which
// one they want.
//
//   Mutex mu_;
//   std::deque<Task> tasks_ GUARDED_BY(mu_);
//
// Held for a few lines only: copy under the lock, act outside it.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MILLRACE_TSA(x) __attribute__((x))
#else
#define MILLRACE_TSA(x)
#endif
// Abseil, which gRPC's headers bring along, has macros of the same names and
// meaning; whichever header comes first, these here count.
#undef GUARDED_BY
#undef NO_THREAD_SAFETY_ANALYSIS
#define CAPABILITY(x) MILLRACE_TSA(capability(x))
#define SCOPED_CAPABILITY MILLRACE_TSA(scoped_lockable)
#define GUARDED_BY(x) MILLRACE_TSA(guarded_by(x))
#define ACQUIRE(...) MILLRACE_TSA(acquire_capability(__VA_ARGS__))
#define RELEASE(...) MILLRACE_TSA(release_capability(__VA_ARGS__))
#define REQUIRES(...) MILLRACE_TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) MILLRACE_TSA(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS MILLRACE_TSA(no_thread_safety_analysis)

namespace millrace {

class CAPABILITY("mutex") Mutex {
 public:
  void Lock() ACQUIRE() { mu_.lock(); }
  void Unlock() RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ACQUIRE(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() RELEASE() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Waits release and retake the caller's lock; spurious wake-ups happen, so a
// wait stands in a loop over its condition.
class CondVar {
 public:
  void Wait(Mutex& mu) REQUIRES(mu) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False once the deadline has passed.
  template <typename TimePoint>
  bool WaitUntil(Mutex& mu, TimePoint deadline)
      REQUIRES(mu) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    const auto status = cv_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace millrace
