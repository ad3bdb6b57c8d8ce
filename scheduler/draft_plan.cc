// The greatest ratio of tokens to seconds is found by Dinkelbach's method: for
// a price of time, the best set is easy, as each row and each level stands for
// itself; the ratio that it reaches is the next price.
// Source: Dinkelbach 1967, On nonlinear fractional programming.
#include "scheduler/draft_plan.h"

#include <algorithm>

namespace millrace::scheduler {
namespace {

// The plan must beat no drafts by so much: prices are estimates.
constexpr double kMargin = 1.1;
constexpr int kRounds = 6;
// A sequence that moves on lacks its last token and one draft token.
constexpr int32_t kUsuallyLacking = 2;

struct Best {
  std::vector<int32_t> depths;
  double tokens = 0;
  double seconds = 0;
};

class Planner {
 public:
  Planner(std::span<const DraftCandidate> candidates, const StepShape& decodes,
          const DraftPrices& prices)
      : candidates_(candidates),
        tokens_(static_cast<double>(decodes.samples)),
        seconds_(prices.model.Seconds(decodes)),
        level_seconds_(prices.draft.Seconds({})) {
    for (const DraftCandidate& candidate : candidates) {
      const StepShape row = ShapeOfRows(candidate.num_tokens, 1, 1);
      row_seconds_.push_back(prices.model.Added(row) + prices.draft.Added(row));
      most_ = std::max(most_, candidate.max_tokens);
    }
  }

  double rate() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

  Best Find() const {
    Best best;
    double price = rate();  // tokens a second
    for (int round = 0; round < kRounds; ++round) {
      best = BestAt(price);
      const double next = best.tokens / best.seconds;
      if (next <= price) break;
      price = next;
    }
    return best;
  }

 private:
  Best BestAt(double price) const {
    const size_t n = candidates_.size();
    std::vector<double> gains(n, 1);
    Best now{std::vector<int32_t>(n, 0), tokens_, seconds_};
    Best best = now;
    for (int32_t level = 1; level <= most_; ++level) {
      now.seconds += level_seconds_;
      for (size_t i = 0; i < n; ++i) {
        const DraftCandidate& candidate = candidates_[i];
        gains[i] *= candidate.rate;
        // Gains fall from level to level, so none comes back.
        if (level > candidate.max_tokens ||
            gains[i] <= price * row_seconds_[i]) {
          continue;
        }
        now.tokens += gains[i];
        now.seconds += row_seconds_[i];
        now.depths[i] = level;
      }
      if (now.tokens - price * now.seconds >
          best.tokens - price * best.seconds) {
        best = now;
      }
    }
    return best;
  }

  const std::span<const DraftCandidate> candidates_;
  const double tokens_;
  const double seconds_;
  const double level_seconds_;
  std::vector<double> row_seconds_;  // to draft a token and to check it
  int32_t most_ = 0;
};

}  // namespace

std::vector<int32_t> PlanDrafts(std::span<const DraftCandidate> candidates,
                                const StepShape& decodes,
                                const DraftPrices& prices) {
  std::vector<DraftCandidate> left(candidates.begin(), candidates.end());
  const Planner planner(left, decodes, prices);
  while (true) {
    const Best best = planner.Find();
    const double rate = best.tokens / best.seconds;
    if (!(rate > kMargin * planner.rate())) {
      return std::vector<int32_t>(left.size(), 0);
    }
    const double saved = 1 / planner.rate() - 1 / rate;  // seconds a token
    bool again = false;
    for (size_t i = 0; i < left.size(); ++i) {
      const int32_t rows = left[i].num_lacking - kUsuallyLacking;
      if (best.depths[i] == 0 || rows <= 0) continue;
      const int32_t begin = left[i].num_tokens - left[i].num_lacking;
      if (prices.draft.Added(ShapeOfRows(begin, rows, 0)) <=
          saved * left[i].num_left) {
        continue;
      }
      left[i].max_tokens = 0;
      again = true;
    }
    if (!again) return best.depths;
  }
}

}  // namespace millrace::scheduler
