// The queue in front of a compiler of grammars: one thread compiles, equal
// constraints that wait are compiled once, results are kept.
//
//   CompileQueue queue([](const OutputConstraint& c) { return Slow(c); }, {});
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
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

  void Compile(const OutputConstraint& constraint, Done done) override;

 private:
  struct Waiting {
    OutputConstraint constraint;
    std::vector<std::pair<std::string, Done>> dones;  // with their fields
  };
  struct Kept {
    std::string key;
    CompiledGrammar grammar;
    int64_t bytes = 0;
  };
  using KeptList = std::list<Kept>;

  void Run();
  void Keep(const std::string& key, const CompiledGrammar& grammar)
      REQUIRES(mu_);

  const Work work_;
  const Limits limits_;
  Mutex mu_;
  CondVar changed_;
  // By key; in `order_` until its work begins.
  std::unordered_map<std::string, Waiting> waiting_ GUARDED_BY(mu_);
  std::deque<std::string> order_ GUARDED_BY(mu_);
  KeptList kept_ GUARDED_BY(mu_);  // latest use first
  std::unordered_map<std::string, KeptList::iterator> by_key_ GUARDED_BY(mu_);
  int64_t kept_bytes_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace millrace::models
