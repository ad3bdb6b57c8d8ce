// A runner whose "model" is a pure function of the tokens it can see, and whose
// KV pool holds those tokens: each row writes its token to its page and reads
// all visible ones back through the page table. A page given to two sequences,
// lost, or filled in the wrong order changes what is read, and is reported by
// name. The next token is a hash of all visible tokens, so batching, chunking
// and preemption must not change an answer.
//
// It may take a second step before the first was waited for, as a device does.
// It computes each at its launch, in their order, and shows results in Wait,
// where its clock moves on.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "models/llm/page_access.h"
#include "models/llm/runner.h"
#include "models/llm/runner_ahead.h"

namespace millrace::scheduler {

inline constexpr int32_t kFakeVocab = 1000;

// The token after `tokens`, of which the first `num_prompt` are the prompt. At
// temperature 0 the text counts up most of the time, so that it repeats itself.
int32_t FakeNext(std::span<const int32_t> tokens, int32_t num_prompt,
                 const models::SamplingParams& sampling);
// The log-probability of `id` after `tokens`.
float FakeLogprob(std::span<const int32_t> tokens, int32_t id);
// The whole answer, one token after the other.
std::vector<int32_t> FakeAnswer(std::vector<int32_t> prompt, int32_t max_tokens,
                                const models::SamplingParams& sampling);

// Lets a test hold the runner between steps. Open unless closed. Thread-safe.
class StepGate {
 public:
  void Close();
  void Open();
  void AllowSteps(int n);  // of a closed gate
  void AwaitBlocked();     // until a step stands before the closed gate
  void Pass();             // by the runner

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ GUARDED_BY(mu_) = true;
  int allowed_ GUARDED_BY(mu_) = 0;
  bool blocked_ GUARDED_BY(mu_) = false;
};

struct FakeOptions {
  int32_t num_pages = 64;
  int32_t max_context = 1024;
  int32_t max_tokens = 512;
  int32_t max_seqs = 16;
  int32_t max_samples = 64;
  // Generated tokens leave other contents in pages than those of prompts.
  bool kv_depends_on_role = false;
  bool checks_roles = true;                  // where they depend on it
  int32_t fault_at_step = 0;                 // counted from 1; 0: never
  std::shared_ptr<StepGate> gate = nullptr;  // null: always open
  // Moved on by what a step takes; null: steps take no time.
  FakeClock* clock = nullptr;
  Clock::Duration step_time{0};
  Clock::Duration row_time{0};
  // Counts pages that no PrepareAhead came before; null: nothing is prepared.
  std::shared_ptr<std::atomic<int32_t>> unprepared = nullptr;
  // Counts steps that were launched ahead; null: none may be. A slot with a
  // repetition penalty draws on the host, and scored rows need it.
  std::shared_ptr<std::atomic<int32_t>> ahead = nullptr;
};

class FakeRunner final : public models::Runner,
                         public models::RunnerAhead,
                         public models::PageAccess {
 public:
  explicit FakeRunner(FakeOptions options);

  const models::RunnerInfo& info() const override { return info_; }
  void InitSlot(const models::SlotInit& init) override;
  void Launch(const models::StepBatch& batch) override;
  StatusOr<const models::StepResult*> Wait() override;
  bool MayLaunchAhead() const override;
  bool PrepareAhead(int32_t first_unused) override;
  int64_t page_bytes() const override;
  void ReadPage(models::PageId page, std::span<std::byte> bytes) const override;
  void WritePage(models::PageId page,
                 std::span<const std::byte> bytes) override;

 private:
  struct Slot {
    models::SamplingParams sampling;
    std::vector<int32_t> tokens;  // what the sequence truly is
    int32_t num_prompt = 0;
  };

  // A step that was launched and not waited for.
  struct Launched {
    const models::StepBatch* batch;
    std::vector<int32_t> tokens;  // of the batch, as it was
    std::vector<int32_t> slots;
    models::StepResult result;
    bool on_host = false;  // some of it is drawn there
    bool fails = false;
  };

  // Tokens of the batch, with what the step before drew in their places.
  void FindTokens(const models::StepBatch& batch);
  // What a page holds of a token at a position of this slot's sequence.
  int32_t Content(const Slot& slot, int32_t position, int32_t token) const;
  void WriteKv(const models::StepBatch& batch);
  void CheckSequence(const models::StepBatch& batch, int32_t seq);
  void AnswerSample(const models::StepBatch& batch, int32_t sample);

  const FakeOptions options_;
  models::RunnerInfo info_;
  std::vector<int32_t> kv_;  // [page][kPageTokens]
  std::vector<Slot> slots_;
  std::vector<int32_t> tokens_;  // of the step
  std::vector<int32_t> known_;   // by sequence of the step: tokens before it
  int64_t num_drafts_ = 0;
  int32_t num_prepared_ = 0;       // pages from the first
  std::deque<Launched> launched_;  // the older one first
  models::StepResult result_;      // of the step that ended last
  int32_t steps_ = 0;
};

}  // namespace millrace::scheduler
