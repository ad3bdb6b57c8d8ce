// Drives a Runner through steps of a chosen shape: what the engine would ask
// for, without engine, sockets or text, so that a measurement is the model's.
//
// One thread, which becomes the runner's worker 0.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/status.h"
#include "models/llm/runner.h"
#include "models/llm/step.h"

namespace millrace::server {

// One repetition: how long it took and what its steps say they cost.
struct BenchRun {
  double seconds = 0;
  double weight_bytes = 0;
  double kv_bytes = 0;
  double macs = 0;
  double prompt_macs = 0;
};

class BenchSteps {
 public:
  explicit BenchSteps(models::Runner& runner);

  // Gives each of `num_seqs` sequences pages for `depth` + `more` tokens and
  // real keys and values for the first `depth`. One page is computed, the rest
  // are its copies: reading them costs what any others would.
  Status Fill(int32_t num_seqs, int32_t depth, int32_t more);

  // Reads `count` tokens of sequence 0 after its first `depth`, in the largest
  // steps there are; the last one samples.
  StatusOr<BenchRun> Prefill(int32_t depth, int32_t count);
  // Answers `count` tokens in each of `num_seqs` sequences.
  StatusOr<BenchRun> Decode(int32_t num_seqs, int32_t depth, int32_t count);

 private:
  void InitSlots(int32_t num_seqs);
  void BeginStep();
  enum class Role { kPrompt, kGenerated };
  // Adds rows of one sequence at positions [begin, begin + count).
  void AddRows(int32_t seq, int32_t begin, int32_t count, Role role,
               bool sample);
  void SetPages(int32_t index, int32_t seq);
  Status Run();

  models::Runner& runner_;
  const models::RunnerInfo& info_;
  models::StepBatch batch_;
  int32_t pages_per_seq_ = 0;
  std::vector<int32_t> next_;  // the token each sequence reads next
  std::vector<int32_t> sampled_;
  BenchRun run_;
};

}  // namespace millrace::server
