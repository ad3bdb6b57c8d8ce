#include "loadtest/live_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace millrace::loadtest {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(500);

int64_t Read(const std::atomic<int64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

LiveLine::LiveLine(bool wanted, std::string name, const Phase& phase,
                   const Progress& progress)
    : shown_(wanted && isatty(STDERR_FILENO) == 1),
      name_(std::move(name)),
      phase_(phase),
      progress_(progress),
      last_(phase.start) {}

void LiveLine::Update(Time now) {
  if (!shown_ || now - last_ < kInterval) return;
  const std::chrono::duration<double> since = now - last_;
  const std::chrono::duration<double> run = now - phase_.start;
  const int64_t ok = Read(progress_.ok);
  const int64_t tokens = Read(progress_.output_tokens);
  const int64_t failed = Read(progress_.failed);
  char goal[32] = "";
  if (phase_.num_requests > 0) {
    std::snprintf(goal, sizeof(goal), " of %lld",
                  static_cast<long long>(phase_.num_requests));
  }
  std::fprintf(stderr,
               "\r\033[K%s %5.1f s  %lld%s answered  %lld failed  %lld under "
               "way  %.1f requests/s  %.0f tokens/s",
               name_.c_str(), run.count(), static_cast<long long>(ok), goal,
               static_cast<long long>(failed),
               static_cast<long long>(Read(progress_.in_flight)),
               static_cast<double>(ok - last_ok_) / since.count(),
               static_cast<double>(tokens - last_tokens_) / since.count());
  std::fflush(stderr);
  last_ = now;
  last_ok_ = ok;
  last_tokens_ = tokens;
}

void LiveLine::Clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace millrace::loadtest
