// The queue in front of a compiler of grammars: one thread compiles, equal
// constraints that wait are compiled once, results are kept. A second thread
// ends requests whose deadline passes or whose client leaves while they wait; a
// constraint that no request waits for any more is not compiled.
//
//   CompileQueue queue([](const OutputConstraint& c) { return Slow(c); }, {});
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "config/base/mutex.h"
#include "models/grammar/grammar_compiler.h"

namespace millrace::models {

class CompileQueue final : public GrammarCompiler {
 public:
  using Work = std::function<CompiledGrammar(const OutputConstraint&)>;
  struct Limits {
    size_t max_waiting = 64;  // constraints that differ; more are refused
    int64_t cache_bytes = int64_t{256} << 20;
  };

  // `work` is called by one thread at a time.
  CompileQueue(Work work, const Limits& limits);
  explicit CompileQueue(Work work) : CompileQueue(std::move(work), Limits{}) {}
  ~CompileQueue() override;

  void Compile(const OutputConstraint& constraint, CompileWait wait,
               Done done) override;

 private:
  // One request that waits.
  struct Ask {
    struct Ring {
      CompileQueue* queue;
      void operator()() const;
    };
    Ask(CompileQueue* queue, std::string field_path, CompileWait given,
        Done told)
        : field(std::move(field_path)),
          wait(std::move(given)),
          done(std::move(told)),
          on_stop(wait.stop, Ring{queue}) {}

    const std::string field;
    const CompileWait wait;
    const Done done;
    // Takes the queue's mutex, so that an ask is never destroyed under it.
    const std::stop_callback<Ring> on_stop;
  };
  using Asks = std::vector<std::unique_ptr<Ask>>;
  struct Waiting {
    OutputConstraint constraint;
    Asks asks;
    bool running = false;
  };
  struct Kept {
    std::string key;
    CompiledGrammar grammar;
    int64_t bytes = 0;
  };
  using KeptList = std::list<Kept>;

  void Run();
  void Watch();
  // Takes out those that wait no longer, and returns when the next one will.
  Asks TakeEnded(Clock::Time now, Clock::Time& next) REQUIRES(mu_);
  void Keep(const std::string& key, const CompiledGrammar& grammar)
      REQUIRES(mu_);

  const Work work_;
  const Limits limits_;
  Mutex mu_;
  CondVar changed_;  // for Run
  CondVar watched_;  // for Watch
  // By key; in `order_` until its work begins.
  std::unordered_map<std::string, Waiting> waiting_ GUARDED_BY(mu_);
  std::deque<std::string> order_ GUARDED_BY(mu_);
  KeptList kept_ GUARDED_BY(mu_);  // latest use first
  std::unordered_map<std::string, KeptList::iterator> by_key_ GUARDED_BY(mu_);
  int64_t kept_bytes_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: they use all of the above
  std::thread watcher_;
};

}  // namespace millrace::models
