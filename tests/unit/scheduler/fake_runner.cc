#include "tests/unit/scheduler/fake_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace millrace::scheduler {
namespace {

using models::kMaxTopLogprobs;
using models::kNoPage;
using models::kPageTokens;
using models::kSample;
using models::PageId;

uint64_t Hash(std::span<const int32_t> tokens, uint64_t seed) {
  uint64_t hash = 14695981039346656037ULL ^ (seed * 0x9e3779b97f4a7c15ULL);
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

int32_t FakeNext(std::span<const int32_t> tokens, int32_t num_prompt,
                 const models::SamplingParams& sampling) {
  const uint64_t hash = Hash(tokens, sampling.seed);
  auto next = static_cast<int32_t>(hash % kFakeVocab);
  if (sampling.temperature == 0 && hash % 8 != 0) {
    next = (tokens.back() + 1) % 40;
  }
  const auto answered = static_cast<int32_t>(tokens.size()) - num_prompt;
  while (answered < sampling.min_tokens &&
         std::ranges::count(sampling.stop_ids, next) > 0) {
    next = (next + 1) % kFakeVocab;
  }
  return next;
}

float FakeLogprob(std::span<const int32_t> tokens, int32_t id) {
  return -static_cast<float>(Hash(tokens, static_cast<uint64_t>(id)) % 4096) /
         256.0f;
}

std::vector<int32_t> FakeAnswer(std::vector<int32_t> prompt, int32_t max_tokens,
                                const models::SamplingParams& sampling) {
  std::vector<int32_t> tokens = std::move(prompt);
  const auto num_prompt = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> answer;
  while (static_cast<int32_t>(answer.size()) < max_tokens) {
    const int32_t next = FakeNext(tokens, num_prompt, sampling);
    tokens.push_back(next);
    answer.push_back(next);
    if (std::ranges::count(sampling.stop_ids, next) > 0) break;
  }
  return answer;
}

void StepGate::Close() {
  MutexLock lock(mu_);
  open_ = false;
}

void StepGate::Open() {
  MutexLock lock(mu_);
  open_ = true;
  changed_.NotifyAll();
}

void StepGate::AllowSteps(int n) {
  MutexLock lock(mu_);
  allowed_ += n;
  changed_.NotifyAll();
}

void StepGate::AwaitBlocked() {
  MutexLock lock(mu_);
  while (!blocked_ || allowed_ > 0) changed_.Wait(mu_);
}

void StepGate::Pass() {
  MutexLock lock(mu_);
  while (!open_ && allowed_ == 0) {
    blocked_ = true;
    changed_.NotifyAll();
    changed_.Wait(mu_);
  }
  blocked_ = false;
  if (!open_) --allowed_;
}

FakeRunner::FakeRunner(FakeOptions options)
    : options_(std::move(options)),
      kv_(int64_t{options_.num_pages} * kPageTokens, -1),
      slots_(options_.max_seqs) {
  info_.limits.max_tokens = options_.max_tokens;
  info_.limits.max_seqs = options_.max_seqs;
  info_.limits.max_samples = options_.max_samples;
  info_.limits.max_pages_per_seq =
      (options_.max_context + kPageTokens - 1) / kPageTokens;
  info_.vocab_size = kFakeVocab;
  info_.max_context = options_.max_context;
  info_.num_pages = options_.num_pages;
  info_.kv_depends_on_role = options_.kv_depends_on_role;
}

void FakeRunner::InitSlot(const models::SlotInit& init) {
  ASSERT_GE(init.slot, 0);
  ASSERT_LT(init.slot, options_.max_seqs);
  for (const Launched& step : launched_) {
    EXPECT_EQ(std::ranges::count(step.slots, init.slot), 0)
        << "a step in flight names the slot";
  }
  Slot& slot = slots_[init.slot];
  slot.sampling = *init.sampling;
  slot.tokens.assign(init.prompt.begin(), init.prompt.end());
  slot.tokens.insert(slot.tokens.end(), init.output.begin(), init.output.end());
  slot.num_prompt = static_cast<int32_t>(init.prompt.size());
}

void FakeRunner::Launch(const models::StepBatch& batch) {
  if (options_.gate) options_.gate->Pass();
  ++steps_;
  if (!launched_.empty()) {
    EXPECT_TRUE(MayLaunchAhead()) << "the step before must be read first";
    if (options_.ahead) ++*options_.ahead;
  }
  EXPECT_GT(batch.num_tokens, 0);
  EXPECT_LE(batch.num_seqs, options_.max_seqs);
  EXPECT_EQ(batch.q_start()[0], 0);
  EXPECT_EQ(batch.q_start()[batch.num_seqs], batch.num_tokens);
  FindTokens(batch);
  launched_.push_back(
      {.batch = &batch,
       .tokens = {batch.tokens().begin(),
                  batch.tokens().begin() + batch.num_tokens},
       .slots = {batch.slot().begin(), batch.slot().begin() + batch.num_seqs},
       .result = {},
       .fails = steps_ == options_.fault_at_step});
  WriteKv(batch);
  known_.assign(batch.num_seqs, 0);
  std::set<int32_t> slots;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    EXPECT_TRUE(slots.insert(batch.slot()[seq]).second)
        << "slot " << batch.slot()[seq] << " runs twice in a step";
    known_[seq] = static_cast<int32_t>(slots_[batch.slot()[seq]].tokens.size());
    CheckSequence(batch, seq);
  }
  models::StepResult& result = launched_.back().result;
  result.ids.assign(batch.num_samples, 0);
  result.logprobs.assign(batch.num_samples, 0);
  result.top.assign(int64_t{batch.num_samples} * kMaxTopLogprobs, {-1, 0});
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    if (i > 0) {
      EXPECT_GT(batch.sample_rows()[i], batch.sample_rows()[i - 1]);
    }
    AnswerSample(batch, i);
  }
}

StatusOr<const models::StepResult*> FakeRunner::Wait() {
  CHECK(!launched_.empty(), "a step that is waited for was launched");
  const Launched step = std::move(launched_.front());
  launched_.pop_front();
  if (options_.clock != nullptr) {
    options_.clock->Advance(options_.step_time +
                            static_cast<int32_t>(step.tokens.size()) *
                                options_.row_time);
  }
  EXPECT_TRUE(std::ranges::equal(
      step.tokens, step.batch->tokens().first(step.tokens.size())))
      << "the batch changed while its step was in flight";
  if (step.fails) {
    // What was written is worthless: make sure that nobody reads it.
    std::fill(kv_.begin(), kv_.end(), -1);
    for (Launched& other : launched_) other.fails = true;
    return Internal("the fake device fell over");
  }
  result_ = step.result;
  return &std::as_const(result_);
}

bool FakeRunner::MayLaunchAhead() const {
  return options_.ahead && launched_.size() == 1 && !launched_[0].on_host;
}

void FakeRunner::FindTokens(const models::StepBatch& batch) {
  tokens_.assign(batch.tokens().begin(),
                 batch.tokens().begin() + batch.num_tokens);
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    for (int32_t row = batch.q_start()[seq]; row < batch.q_start()[seq + 1];
         ++row) {
      if (!models::IsDrawn(tokens_[row])) continue;
      ASSERT_FALSE(launched_.empty()) << "no step before draws the token";
      const Launched& before = launched_.back();
      const int32_t sample = models::SampleOf(tokens_[row]);
      ASSERT_LT(sample, before.batch->num_samples);
      EXPECT_EQ(before.batch->score_ids()[sample], kSample);
      EXPECT_EQ(before.slots[before.batch->sample_seqs()[sample]],
                batch.slot()[seq])
          << "the token is drawn for another slot";
      tokens_[row] = before.result.ids[sample];
    }
  }
}

int64_t FakeRunner::page_bytes() const { return kPageTokens * sizeof(int32_t); }

void FakeRunner::ReadPage(PageId page, std::span<std::byte> bytes) const {
  ASSERT_EQ(bytes.size(), static_cast<size_t>(page_bytes()));
  std::memcpy(bytes.data(), &kv_[static_cast<int64_t>(page) * kPageTokens],
              bytes.size());
}

void FakeRunner::WritePage(PageId page, std::span<const std::byte> bytes) {
  ASSERT_EQ(bytes.size(), static_cast<size_t>(page_bytes()));
  std::memcpy(&kv_[static_cast<int64_t>(page) * kPageTokens], bytes.data(),
              bytes.size());
}

int32_t FakeRunner::Content(const Slot& slot, int32_t position,
                            int32_t token) const {
  const bool marked = options_.kv_depends_on_role && options_.checks_roles &&
                      position >= slot.num_prompt;
  return marked ? token + kFakeVocab : token;
}

bool FakeRunner::PrepareAhead(int32_t first_unused) {
  constexpr int32_t kAhead = 64;
  if (options_.unprepared) {
    num_prepared_ = std::max(num_prepared_, first_unused + kAhead);
  }
  return false;
}

void FakeRunner::WriteKv(const models::StepBatch& batch) {
  for (int32_t i = 0; i < batch.num_copies; ++i) {
    const auto [src, dst] = batch.copies()[i];
    std::copy_n(kv_.begin() + static_cast<int64_t>(src) * kPageTokens,
                kPageTokens,
                kv_.begin() + static_cast<int64_t>(dst) * kPageTokens);
  }
  std::set<int64_t> written;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    for (int32_t row = batch.q_start()[seq]; row < batch.q_start()[seq + 1];
         ++row) {
      const int32_t position = batch.positions()[row];
      const PageId page = batch.pages(seq)[position / kPageTokens];
      ASSERT_NE(page, kNoPage) << "no page for position " << position;
      ASSERT_LT(static_cast<int32_t>(page), options_.num_pages);
      if (options_.unprepared && static_cast<int32_t>(page) >= num_prepared_) {
        ++*options_.unprepared;
        num_prepared_ = static_cast<int32_t>(page) + 1;
      }
      const int64_t cell =
          static_cast<int64_t>(page) * kPageTokens + position % kPageTokens;
      EXPECT_TRUE(written.insert(cell).second)
          << "page " << static_cast<int32_t>(page)
          << " is written by two rows of a step";
      kv_[cell] = Content(slots_[batch.slot()[seq]], position, tokens_[row]);
    }
  }
}

void FakeRunner::CheckSequence(const models::StepBatch& batch, int32_t seq) {
  const Slot& slot = slots_[batch.slot()[seq]];
  const int32_t kv_len = batch.kv_len()[seq];
  const int32_t begin = batch.q_start()[seq];
  const int32_t end = batch.q_start()[seq + 1];
  ASSERT_LT(begin, end);
  const auto num_known = static_cast<int32_t>(slot.tokens.size());
  ASSERT_LE(kv_len - (end - begin), num_known - 1)
      << "the slot was not initialised or runs ahead of its tokens";
  num_drafts_ += std::max(kv_len - num_known, 0);
  for (int32_t row = begin; row < end; ++row) {
    EXPECT_EQ(batch.positions()[row], kv_len - (end - row));
    EXPECT_EQ(row < begin + batch.prompt_rows()[seq],
              batch.positions()[row] < slot.num_prompt);
  }
  for (int32_t position = 0; position < kv_len; ++position) {
    const PageId page = batch.pages(seq)[position / kPageTokens];
    ASSERT_EQ(
        kv_[static_cast<int64_t>(page) * kPageTokens + position % kPageTokens],
        Content(slot, position,
                position < num_known
                    ? slot.tokens[position]
                    : tokens_[begin + position - (kv_len - (end - begin))]))
        << "slot " << batch.slot()[seq] << " sees a foreign token at position "
        << position << " of page " << static_cast<int32_t>(page);
  }
}

void FakeRunner::AnswerSample(const models::StepBatch& batch, int32_t sample) {
  const int32_t seq = batch.sample_seqs()[sample];
  const int32_t row = batch.sample_rows()[sample];
  ASSERT_LE(batch.q_start()[seq], row);
  ASSERT_LT(row, batch.q_start()[seq + 1]);
  Slot& slot = slots_[batch.slot()[seq]];
  const int32_t num_visible = batch.positions()[row] + 1;
  // CheckSequence has shown that the pages hold exactly these.
  std::vector<int32_t> visible(num_visible);
  for (int32_t position = 0; position < num_visible; ++position) {
    const PageId page = batch.pages(seq)[position / kPageTokens];
    visible[position] =
        kv_[static_cast<int64_t>(page) * kPageTokens + position % kPageTokens] %
        kFakeVocab;
  }
  int32_t id = batch.score_ids()[sample];
  bool counts = false;
  if (id == kSample) {
    ASSERT_GE(num_visible, known_[seq]) << "the last known token samples";
    id = FakeNext(visible, slot.num_prompt, slot.sampling);
    // Draft tokens in front of it were accepted.
    counts = num_visible == static_cast<int32_t>(slot.tokens.size()) &&
             std::ranges::equal(visible, slot.tokens);
  }
  Launched& step = launched_.back();
  step.on_host = step.on_host || batch.score_ids()[sample] != kSample ||
                 slot.sampling.repetition_penalty != 1;
  step.result.ids[sample] = id;
  step.result.logprobs[sample] = FakeLogprob(visible, id);
  for (int32_t k = 0; k < slot.sampling.top_logprobs; ++k) {
    step.result.top[int64_t{sample} * kMaxTopLogprobs + k] = {
        k, FakeLogprob(visible, k)};
  }
  if (counts) slot.tokens.push_back(id);
}

}  // namespace millrace::scheduler
