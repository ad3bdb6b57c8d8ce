// A refused constraint is remembered, too: a client that repeats it costs no
// second child. What failed for another reason is tried again.
#include "models/grammar/compile_queue.h"

#include <pthread.h>

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

CompileQueue::CompileQueue(Work work, const Limits& limits)
    : work_(std::move(work)), limits_(limits), thread_([this] { Run(); }) {}

CompileQueue::~CompileQueue() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  for (auto& [key, waiting] : waiting_) {
    for (auto& [field, done] : waiting.dones) {
      done(Unavailable("the model is being unloaded"));
    }
  }
}

void CompileQueue::Compile(const OutputConstraint& constraint, Done done) {
  std::string key = KeyOf(constraint);
  CompiledGrammar ready = Internal("set below");
  {
    MutexLock lock(mu_);
    if (const auto kept = by_key_.find(key); kept != by_key_.end()) {
      kept_.splice(kept_.begin(), kept_, kept->second);
      ready = kept->second->grammar;
    } else if (const auto same = waiting_.find(key); same != waiting_.end()) {
      same->second.dones.emplace_back(constraint.field, std::move(done));
      return;
    } else if (waiting_.size() < limits_.max_waiting) {
      Waiting& waiting = waiting_[key];
      waiting.constraint = constraint;
      waiting.dones.emplace_back(constraint.field, std::move(done));
      order_.push_back(std::move(key));
      changed_.NotifyOne();
      return;
    } else {
      ready = ResourceExhausted(std::to_string(limits_.max_waiting) +
                                " other grammars wait to be compiled; try "
                                "again in a second")
                  .RetryAfterMs(1000)
                  .Because("queue_full");
    }
  }
  done(AtField(std::move(ready), constraint.field));
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
      constraint = waiting_.at(key).constraint;
    }
    const CompiledGrammar grammar = work_(constraint);
    std::vector<std::pair<std::string, Done>> dones;
    {
      MutexLock lock(mu_);
      const auto done = waiting_.find(key);
      dones = std::move(done->second.dones);
      waiting_.erase(done);
      if (IsLasting(grammar)) Keep(key, grammar);
    }
    for (auto& [field, done] : dones) done(AtField(grammar, field));
  }
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
