#include "loadtest/worker.h"

namespace millrace::loadtest {

void Progress::Count(const RequestRecord& record) {
  if (record.outcome != Outcome::kOk) {
    failed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ok.fetch_add(1, std::memory_order_relaxed);
  if (record.output_tokens > 0) {
    output_tokens.fetch_add(record.output_tokens, std::memory_order_relaxed);
  }
}

int64_t ShareOf(int64_t total, int64_t thread_index, int64_t num_threads) {
  return total / num_threads + (thread_index < total % num_threads ? 1 : 0);
}

ArrivalShare::ArrivalShare(const Phase& phase, int64_t thread_index,
                           int64_t num_threads)
    : phase_(phase),
      arrivals_(phase.arrivals),
      thread_index_(thread_index),
      num_threads_(num_threads) {}

std::optional<Ticket> ArrivalShare::Next() {
  while (true) {
    if (phase_.num_requests >= 0 && index_ >= phase_.num_requests) {
      return std::nullopt;
    }
    const auto offset = arrivals_.Next();
    if (!offset || phase_.start + *offset >= phase_.stop) return std::nullopt;
    const int64_t index = index_++;
    if (index % num_threads_ != thread_index_) continue;
    return Ticket{phase_.first_index + index, phase_.start + *offset};
  }
}

std::optional<Ticket> NextTurnOf(const Phase& phase, Progress& progress) {
  const Time now = Clock::now();
  if (now >= phase.stop ||
      progress.stop.load(std::memory_order_relaxed) != StopLevel::kNone) {
    return std::nullopt;
  }
  const int64_t index = progress.next.fetch_add(1, std::memory_order_relaxed);
  if (phase.num_requests >= 0 && index >= phase.num_requests) {
    return std::nullopt;
  }
  return Ticket{phase.first_index + index, now};
}

}  // namespace millrace::loadtest
