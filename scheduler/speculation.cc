// The best set is found greedily: draft tokens in order of gain per second, as
// long as each beats the average so far. Within a sequence the gains fall,
// because a draft token counts only if all before it are accepted.
#include "scheduler/speculation.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace millrace::scheduler {
namespace {

// Before anything is known, a draft token is thought to be accepted this often:
// of a look-up too seldom for a long one, of a model more often.
constexpr double kFirstRate = 0.4;
constexpr double kFirstModelRate = 0.7;
// A text that is forced may be spelled by other tokens, one that is predicted
// is to be changed here and there.
constexpr double kFirstForcedRate = 0.8;
constexpr double kFirstPredictedRate = 0.8;
// What others' draft tokens say weighs as much as so many of the sequence's
// own.
constexpr double kOthersWeight = 4;
// The latest draft tokens count for about so many.
constexpr double kMemory = 24;
// A draft token must beat the average by so much: prices are estimates.
constexpr double kMargin = 1.1;
// Of the time without draft tokens, for trials; so much is saved up at most.
constexpr double kTrialShare = 0.01;
constexpr double kMostTrialSeconds = 0.5;
constexpr int32_t kTrialTokens = 2;

}  // namespace

double AcceptanceRates::Rate(int32_t kind, double expected) const {
  const Counts& counts = counts_[static_cast<size_t>(kind)];
  return (counts.come_true + kOthersWeight * expected) /
         (counts.all + kOthersWeight);
}

void AcceptanceRates::Count(int32_t kind, int32_t num_true, int32_t num_false) {
  Counts& counts = counts_[static_cast<size_t>(kind)];
  counts.come_true += num_true;
  counts.all += num_true + num_false;
  if (counts.all <= kMemory) return;
  counts.come_true *= kMemory / counts.all;
  counts.all = kMemory;
}

Speculation::Speculation(std::unique_ptr<Drafter> drafter, int32_t max_tokens,
                         bool always)
    : drafter_(std::move(drafter)),
      max_tokens_(max_tokens),
      always_(always),
      first_rate_(drafter_->cost() == nullptr ? kFirstRate : kFirstModelRate) {}

double Speculation::Rate(const DraftRecord& record) const {
  const int32_t kind = record.draft.kind;
  const double first = kind == kForcedKind      ? kFirstForcedRate
                       : kind == kPredictedKind ? kFirstPredictedRate
                                                : first_rate_;
  return record.rates.Rate(kind, all_.Rate(kind, first));
}

double Speculation::Propose(std::span<const Target> targets,
                            const StepShape& decodes, const StepCost& cost) {
  std::vector<DraftRequest> requests;
  std::vector<Target> asked;  // those that the client predicts nothing for
  for (const Target& target : targets) {
    const Sequence& sequence = *target.sequence;
    // The row of the last token draws one by itself.
    const int32_t room = sequence.max_output - sequence.num_output() - 1;
    const int32_t most = std::min(max_tokens_, std::max(room, 0));
    DraftRecord& record = *target.record;
    record.draft = {record.prediction.Propose(sequence.output(), most),
                    kPredictedKind};
    if (!record.draft.tokens.empty()) continue;
    record.draft = {};
    requests.push_back({&sequence, most, &record.draft});
    asked.push_back(target);
  }
  trying_ = false;
  if (drafter_->cost() != nullptr && !always_ && !asked.empty()) {
    Plan(asked, decodes, cost, requests);
  }
  const double before = drafter_->seconds();
  drafter_->Propose(requests);
  const double spent = drafter_->seconds() - before;
  if (trying_) trial_seconds_ -= spent;
  Choose(targets, decodes, cost, spent);
  return spent;
}

void Speculation::Plan(std::span<const Target> targets,
                       const StepShape& decodes, const StepCost& cost,
                       std::span<DraftRequest> requests) {
  const StepCost& draft_cost = *drafter_->cost();
  std::vector<DraftCandidate> candidates;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Sequence& sequence = *requests[i].sequence;
    const std::optional<int32_t> lacking = drafter_->Lacking(sequence);
    if (!lacking || !cost.known()) requests[i].max_tokens = 0;
    candidates.push_back(
        {.rate = Rate(*targets[i].record),
         .num_tokens = sequence.num_tokens(),
         .max_tokens = requests[i].max_tokens,
         .num_lacking = lacking.value_or(0),
         .num_left = sequence.max_output - sequence.num_output()});
  }
  if (!cost.known()) return;
  if (draft_cost.known()) {
    const std::vector<int32_t> depths =
        PlanDrafts(candidates, decodes, {cost, draft_cost});
    if (std::ranges::any_of(depths, [](int32_t depth) { return depth > 0; })) {
      for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].max_tokens = depths[i];
      }
      return;
    }
  }
  trying_ = true;
  trial_seconds_ = std::min(
      trial_seconds_ + kTrialShare * cost.Seconds(decodes), kMostTrialSeconds);
  Try(candidates, requests);
}

// With the sequence that needs least before its first draft token, if that is
// affordable.
void Speculation::Try(std::span<const DraftCandidate> candidates,
                      std::span<DraftRequest> requests) {
  const StepCost& draft_cost = *drafter_->cost();
  DraftRequest* cheapest = nullptr;
  int32_t most = 0;
  double least = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftCandidate& candidate = candidates[i];
    if (std::exchange(requests[i].max_tokens, 0) == 0) continue;
    const int32_t begin = candidate.num_tokens - candidate.num_lacking;
    const double seconds =
        draft_cost.Seconds(ShapeOfRows(begin, candidate.num_lacking, 1)) +
        draft_cost.Seconds(ShapeOfRows(candidate.num_tokens, 1, 1));
    if (cheapest != nullptr && seconds >= least) continue;
    cheapest = &requests[i];
    most = candidate.max_tokens;
    least = seconds;
  }
  if (cheapest == nullptr) return;
  if (draft_cost.known() && least > trial_seconds_) return;
  cheapest->max_tokens = std::min(kTrialTokens, most);
}

void Speculation::Choose(std::span<const Target> targets,
                         const StepShape& decodes, const StepCost& cost,
                         double spent_seconds) const {
  if (always_) {
    for (const auto& [sequence, record] : targets) {
      sequence->draft = record->draft.tokens;
    }
    return;
  }
  struct Row {
    double gain;  // tokens
    double seconds;
    size_t target;
  };
  std::vector<Row> rows;
  for (size_t i = 0; i < targets.size(); ++i) {
    Sequence& sequence = *targets[i].sequence;
    sequence.draft.clear();
    if (!cost.known()) continue;
    const double rate = Rate(*targets[i].record);
    double gain = 1;
    for (size_t k = 0; k < targets[i].record->draft.tokens.size(); ++k) {
      gain *= rate;
      const int32_t position =
          sequence.num_computed + 1 + static_cast<int32_t>(k);
      rows.push_back({gain, cost.Added(ShapeOfRows(position, 1, 1)), i});
    }
  }
  if (rows.empty()) return;
  std::ranges::stable_sort(rows, [](const Row& a, const Row& b) {
    return a.gain * b.seconds > b.gain * a.seconds;
  });
  auto tokens = static_cast<double>(decodes.samples);
  double seconds = cost.Seconds(decodes) + spent_seconds;
  for (const Row& row : rows) {
    if (row.gain * seconds <= kMargin * tokens * row.seconds) break;
    tokens += row.gain;
    seconds += row.seconds;
    const Target& target = targets[row.target];
    std::vector<int32_t>& draft = target.sequence->draft;
    draft.push_back(target.record->draft.tokens[draft.size()]);
  }
}

void Speculation::Learn(DraftRecord& record, int32_t num_taken,
                        std::span<const int32_t> sampled) {
  const Draft& draft = record.draft;
  if (draft.tokens.empty() || sampled.empty()) return;
  // Of a draft that was not taken the first token is known to be right or not.
  const auto judged = std::min(static_cast<size_t>(std::max(num_taken, 1)),
                               draft.tokens.size());
  int32_t num_true = 0;
  int32_t num_false = 0;
  for (size_t k = 0; k < std::min(judged, sampled.size()); ++k) {
    if (sampled[k] != draft.tokens[k]) {
      num_false = 1;
      break;
    }
    ++num_true;
  }
  if (draft.kind == kPredictedKind && num_taken > 0) {
    record.prediction.Count(num_true, num_taken - num_true);
  }
  record.rates.Count(draft.kind, num_true, num_false);
  all_.Count(draft.kind, num_true, num_false);
}

}  // namespace millrace::scheduler
