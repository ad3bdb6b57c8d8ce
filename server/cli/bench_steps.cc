// Sequence s holds the pages [s * pages_per_seq, (s + 1) * pages_per_seq); the
// last page of the pool is spare and holds the 64 tokens that Fill copies.
#include "server/cli/bench_steps.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>

namespace millrace::server {
namespace {

using models::kNoPage;
using models::kPageTokens;
using models::PageId;
using SteadyClock = std::chrono::steady_clock;

constexpr int32_t kSpare = -1;  // the sequence that owns the spare page

double SecondsSince(SteadyClock::time_point begun) {
  return std::chrono::duration<double>(SteadyClock::now() - begun).count();
}

}  // namespace

BenchSteps::BenchSteps(models::Runner& runner)
    : runner_(runner), info_(runner.info()), batch_(info_.limits) {}

void BenchSteps::InitSlots(int32_t num_seqs) {
  models::SamplingParams greedy;
  greedy.temperature = 0;
  const int32_t prompt[] = {0};
  for (int32_t slot = 0; slot < num_seqs; ++slot) {
    runner_.InitSlot(
        {.slot = slot, .sampling = &greedy, .prompt = prompt, .output = {}});
  }
}

void BenchSteps::BeginStep() {
  batch_.Clear();
  batch_.q_start()[0] = 0;
}

void BenchSteps::SetPages(int32_t index, int32_t seq) {
  const std::span<PageId> pages = batch_.pages(index);
  std::fill(pages.begin(), pages.end(), kNoPage);
  if (seq == kSpare) {
    pages[0] = PageId{info_.num_pages - 1};
    return;
  }
  for (int32_t i = 0; i < pages_per_seq_; ++i) {
    pages[i] = PageId{seq * pages_per_seq_ + i};
  }
}

void BenchSteps::AddRows(int32_t seq, int32_t begin, int32_t count, Role role,
                         bool sample) {
  const int32_t index = batch_.num_seqs++;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t row = batch_.num_tokens + i;
    // Any ids do; a stride that is prime to most sizes visits many.
    const int64_t any = (int64_t{7919} * (begin + i) + 13) % info_.vocab_size;
    batch_.tokens()[row] =
        role == Role::kGenerated ? next_[seq] : static_cast<int32_t>(any);
    batch_.positions()[row] = begin + i;
  }
  batch_.num_tokens += count;
  batch_.q_start()[index + 1] = batch_.num_tokens;
  batch_.kv_len()[index] = begin + count;
  batch_.slot()[index] = std::max(seq, 0);
  batch_.prompt_rows()[index] = role == Role::kPrompt ? count : 0;
  SetPages(index, seq);
  if (!sample) return;
  const int32_t at = batch_.num_samples++;
  batch_.sample_rows()[at] = batch_.num_tokens - 1;
  batch_.sample_seqs()[at] = index;
  batch_.score_ids()[at] = models::kSample;
}

Status BenchSteps::Run() {
  runner_.Launch(batch_);
  ASSIGN_OR_RETURN(const models::StepResult* result, runner_.Wait());
  sampled_.assign(result->ids.begin(), result->ids.end());
  const models::StepAccount account = runner_.account();
  run_.weight_bytes += account.weight_bytes;
  run_.kv_bytes += account.kv_bytes;
  run_.macs += account.macs;
  run_.prompt_macs += account.prompt_macs;
  return OkStatus();
}

Status BenchSteps::Fill(int32_t num_seqs, int32_t depth, int32_t more) {
  pages_per_seq_ = (depth + more + kPageTokens - 1) / kPageTokens;
  if (int64_t{num_seqs} * pages_per_seq_ + 1 > info_.num_pages ||
      num_seqs > info_.limits.max_seqs || depth + more > info_.max_context) {
    return OutOfRange(std::to_string(num_seqs) + " sequences of " +
                      std::to_string(depth + more) +
                      " tokens do not fit into " +
                      std::to_string(info_.num_pages) + " pages");
  }
  next_.assign(num_seqs, 1 % info_.vocab_size);
  InitSlots(1);
  for (int32_t at = 0; at < kPageTokens; at += info_.limits.max_tokens) {
    BeginStep();
    AddRows(kSpare, at, std::min(info_.limits.max_tokens, kPageTokens - at),
            Role::kPrompt, false);
    RETURN_IF_ERROR(Run());
  }
  const PageId spare{info_.num_pages - 1};
  const int32_t full = (depth + kPageTokens - 1) / kPageTokens;
  for (int32_t i = 0; i < num_seqs * full;) {
    BeginStep();
    AddRows(kSpare, kPageTokens - 1, 1, Role::kPrompt, false);
    for (; i < num_seqs * full && batch_.num_copies < info_.limits.max_seqs;
         ++i) {
      const PageId page{i / full * pages_per_seq_ + i % full};
      batch_.copies()[batch_.num_copies++] = {spare, page};
    }
    RETURN_IF_ERROR(Run());
  }
  return OkStatus();
}

StatusOr<BenchRun> BenchSteps::Prefill(int32_t depth, int32_t count) {
  InitSlots(1);
  run_ = {};
  const auto begun = SteadyClock::now();
  for (int32_t at = 0; at < count; at += info_.limits.max_tokens) {
    const int32_t rows = std::min(info_.limits.max_tokens, count - at);
    BeginStep();
    AddRows(0, depth + at, rows, Role::kPrompt, at + rows == count);
    RETURN_IF_ERROR(Run());
  }
  run_.seconds = SecondsSince(begun);
  return run_;
}

StatusOr<BenchRun> BenchSteps::Decode(int32_t num_seqs, int32_t depth,
                                      int32_t count) {
  InitSlots(num_seqs);
  next_.assign(num_seqs, 1 % info_.vocab_size);
  run_ = {};
  const auto begun = SteadyClock::now();
  for (int32_t i = 0; i < count; ++i) {
    BeginStep();
    for (int32_t seq = 0; seq < num_seqs; ++seq) {
      AddRows(seq, depth + i, 1, Role::kGenerated, true);
    }
    RETURN_IF_ERROR(Run());
    next_ = sampled_;
  }
  run_.seconds = SecondsSince(begun);
  return run_;
}

}  // namespace millrace::server
