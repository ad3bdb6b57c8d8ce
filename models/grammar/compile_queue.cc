// A refused constraint is remembered, too: a client that repeats it costs no
// second child. What failed for another reason is tried again.
#include "models/grammar/compile_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace millrace::models {
namespace {

constexpr int64_t kErrorBytes = 1024;  // what a remembered refusal counts

std::string KeyOf(const OutputConstraint& constraint) {
  return std::to_string(static_cast<int>(constraint.kind)) + ":" +
         constraint.text;
}

CompiledGrammar AtField(CompiledGrammar grammar, const std::string& field) {
  if (grammar.ok() || field.empty()) return grammar;
  return grammar.status().At(field);
}

bool IsLasting(const CompiledGrammar& grammar) {
  return grammar.ok() ||
         grammar.status().code() == StatusCode::kInvalidArgument;
}

}  // namespace

void CompileQueue::Ask::Ring::operator()() const {
  MutexLock lock(queue->mu_);
  queue->watched_.NotifyOne();
}

CompileQueue::CompileQueue(Work work, const Limits& limits)
    : work_(std::move(work)),
      limits_(limits),
      thread_([this] { Run(); }),
      watcher_([this] { Watch(); }) {}

CompileQueue::~CompileQueue() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  watched_.NotifyAll();
  thread_.join();
  watcher_.join();
  std::unordered_map<std::string, Waiting> left;
  {
    MutexLock lock(mu_);
    left.swap(waiting_);
  }
  for (auto& [key, waiting] : left) {
    for (const std::unique_ptr<Ask>& ask : waiting.asks) {
      ask->done(Unavailable("the model is being unloaded"));
    }
  }
}

void CompileQueue::Compile(const OutputConstraint& constraint, CompileWait wait,
                           Done done) {
  std::string key = KeyOf(constraint);
  auto ask = std::make_unique<Ask>(this, constraint.field, std::move(wait),
                                   std::move(done));
  CompiledGrammar ready = Internal("set below");
  {
    MutexLock lock(mu_);
    if (const auto kept = by_key_.find(key); kept != by_key_.end()) {
      kept_.splice(kept_.begin(), kept_, kept->second);
      ready = kept->second->grammar;
    } else if (const auto same = waiting_.find(key); same != waiting_.end()) {
      same->second.asks.push_back(std::move(ask));
    } else if (waiting_.size() < limits_.max_waiting) {
      Waiting& waiting = waiting_[key];
      waiting.constraint = constraint;
      waiting.asks.push_back(std::move(ask));
      order_.push_back(std::move(key));
      changed_.NotifyOne();
    } else {
      ready = ResourceExhausted(std::to_string(limits_.max_waiting) +
                                " other grammars wait to be compiled; try "
                                "again in a second")
                  .RetryAfterMs(1000)
                  .Because("queue_full");
    }
    if (ask == nullptr) watched_.NotifyOne();
  }
  if (ask != nullptr) ask->done(AtField(std::move(ready), constraint.field));
}

void CompileQueue::Run() {
  pthread_setname_np(pthread_self(), "grammar");
  while (true) {
    std::string key;
    OutputConstraint constraint;
    {
      MutexLock lock(mu_);
      while (order_.empty() && !stopping_) changed_.Wait(mu_);
      if (stopping_) return;
      key = std::move(order_.front());
      order_.pop_front();
      Waiting& waiting = waiting_.at(key);
      waiting.running = true;
      constraint = waiting.constraint;
    }
    const CompiledGrammar grammar = work_(constraint);
    Asks asks;
    {
      MutexLock lock(mu_);
      const auto done = waiting_.find(key);
      asks = std::move(done->second.asks);
      waiting_.erase(done);
      if (IsLasting(grammar)) Keep(key, grammar);
    }
    for (const std::unique_ptr<Ask>& ask : asks) {
      ask->done(AtField(grammar, ask->field));
    }
  }
}

void CompileQueue::Watch() {
  pthread_setname_np(pthread_self(), "grammar-wait");
  while (true) {
    Asks ended;
    {
      MutexLock lock(mu_);
      while (!stopping_) {
        Clock::Time next = kNever;
        ended = TakeEnded(Clock::Real().Now(), next);
        if (!ended.empty()) break;
        if (next == kNever) {
          watched_.Wait(mu_);
        } else {
          watched_.WaitUntil(mu_, next);
        }
      }
      if (ended.empty()) return;
    }
    for (const std::unique_ptr<Ask>& ask : ended) {
      ask->done(ask->wait.stop.stop_requested()
                    ? Cancelled("the client is gone")
                    : DeadlineExceeded("the request's deadline passed while "
                                       "its grammar was compiled"));
    }
  }
}

CompileQueue::Asks CompileQueue::TakeEnded(Clock::Time now, Clock::Time& next) {
  Asks ended;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Waiting& waiting = at->second;
    for (std::unique_ptr<Ask>& ask : waiting.asks) {
      if (ask->wait.stop.stop_requested() || ask->wait.deadline <= now) {
        ended.push_back(std::move(ask));
      } else {
        next = std::min(next, ask->wait.deadline);
      }
    }
    std::erase(waiting.asks, nullptr);
    if (waiting.asks.empty() && !waiting.running) {
      std::erase(order_, at->first);
      at = waiting_.erase(at);
    } else {
      ++at;
    }
  }
  return ended;
}

void CompileQueue::Keep(const std::string& key,
                        const CompiledGrammar& grammar) {
  const int64_t bytes =
      static_cast<int64_t>(2 * key.size()) +
      (grammar.ok() ? (*grammar)->memory_bytes() : kErrorBytes);
  kept_.push_front({key, grammar, bytes});
  by_key_[key] = kept_.begin();
  kept_bytes_ += bytes;
  // The newest stays, however large: its request runs anyway.
  while (kept_bytes_ > limits_.cache_bytes && kept_.size() > 1) {
    kept_bytes_ -= kept_.back().bytes;
    by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
}

}  // namespace millrace::models
