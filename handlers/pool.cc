// A bounded queue and a few named threads. The bound counts all queued tasks,
// but Continue ignores it: the queue may exceed the bound by as many tasks as
// there are accepted requests.
#include "handlers/pool.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "config/base/log.h"

namespace millrace::handlers {
namespace {

void RunTask(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& error) {  // out of memory, most likely
    LogError("a task of the handler pool failed", {{"error", error.what()}});
  }
}

}  // namespace

Pool::Pool(int num_threads, size_t max_queued, const config::CpuSet& cpus,
           Timeline* timeline)
    : timeline_(timeline), max_queued_(max_queued) {
  num_threads = std::max(num_threads, 1);
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this, cpus, i] {
      const Status pinned =
          config::PinThisThread(cpus, "handler-" + std::to_string(i));
      if (!pinned.ok()) {
        LogWarning("handler thread is not pinned",
                   {{"why", pinned.ToString()}});
      }
      Run(timeline_ == nullptr
              ? 0
              : timeline_->Track("server", "handler-" + std::to_string(i)));
    });
  }
}

Pool::~Pool() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

bool Pool::TryPost(std::function<void()> task) {
  {
    MutexLock lock(mu_);
    if (stopping_ || tasks_.size() >= max_queued_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyOne();
  return true;
}

void Pool::Continue(std::function<void()> task) {
  {
    MutexLock lock(mu_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyOne();
}

void Pool::Run(int track) {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      while (tasks_.empty() && !stopping_) changed_.Wait(mu_);
      if (tasks_.empty()) return;  // stopping, and nothing is owed
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (timeline_ == nullptr || !timeline_->on()) {
      RunTask(task);
      continue;
    }
    const Clock::Time begin = Clock::Real().Now();
    RunTask(task);
    timeline_->Add({.track = track,
                    .name = "task",
                    .begin = begin,
                    .end = Clock::Real().Now()});
  }
}

}  // namespace millrace::handlers
