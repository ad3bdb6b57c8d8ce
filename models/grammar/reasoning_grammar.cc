// One small state behind each output token, so that tokens can be taken back.
#include "models/grammar/reasoning_grammar.h"

#include <algorithm>
#include <span>
#include <utility>

namespace millrace::models {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Bytes of `tag` that a text ends with, which ended with `matched` of them
// before this byte.
uint32_t Matched(std::string_view tag, uint32_t matched, char c) {
  std::string end(tag.substr(0, matched));
  end += c;
  while (!end.empty() && !tag.starts_with(end)) end.erase(0, 1);
  return static_cast<uint32_t>(end.size());
}

struct Shared {
  ReasoningRules rules;
  std::shared_ptr<const TokenGrammar> behind;  // or null
  // Tokens that may end the closing tag and go on with more than white space:
  // the grammar behind it would not see that.
  TagEnds::Ids mixed = {};
};

class Matcher final : public GrammarMatcher {
 public:
  explicit Matcher(std::shared_ptr<const Shared> shared)
      : shared_(std::move(shared)),
        rules_(shared_->rules),
        behind_(shared_->behind == nullptr ? nullptr
                                           : shared_->behind->NewMatcher()) {
    states_.push_back(
        {.phase = rules_.begun ? Phase::kReasoning : Phase::kBefore});
  }

  void Fill(std::span<uint32_t> mask) override {
    const State& now = states_.back();
    if (IsFed(now)) {
      behind_->Fill(mask);
    } else {
      std::ranges::fill(mask, ~0u);
    }
    if (now.phase != Phase::kReasoning) return;
    if (IsUsedUp(now)) {
      const int32_t id = rules_.close_ids[now.num_forced];
      // Where the grammar forbids the tag, reasoning goes on.
      if (!Bit(id, mask).IsSet()) return;
      std::ranges::fill(mask, 0u);
      Bit(id, mask).Set();
      return;
    }
    if (!rules_.delays_grammar) return;
    for (const int32_t id : rules_.stop_ids) Bit(id, mask).Clear();
    for (const int32_t id : *shared_->mixed) {
      if (IsMixed(id, now.matched)) Bit(id, mask).Clear();
    }
  }

  bool Accept(int32_t id) override {
    State next = states_.back();
    if (IsFed(next) && !behind_->Accept(id)) return false;
    const std::string_view text = rules_.piece(id);
    if (next.phase == Phase::kBefore) {
      for (const char c : text) StepBefore(c, next);
    } else if (next.phase == Phase::kReasoning) {
      const bool forced =
          IsUsedUp(next) && id == rules_.close_ids[next.num_forced];
      next.num_forced = forced ? next.num_forced + 1 : 0;
      ++next.num_thought;
      for (const char c : text) {
        next.matched = Matched(rules_.close, next.matched, c);
        if (next.matched == rules_.close.size()) break;
      }
      if (next.matched == rules_.close.size() ||
          next.num_forced == rules_.close_ids.size()) {
        next.phase = Phase::kBehind;
      }
    }
    states_.push_back(next);
    return true;
  }

  void Rollback(int32_t n) override {
    int32_t num_fed = 0;
    for (; n > 0; --n) {
      states_.pop_back();
      if (IsFed(states_.back())) ++num_fed;
    }
    if (num_fed > 0) behind_->Rollback(num_fed);
  }

  std::vector<int32_t> ForcedTokens(int32_t most) override {
    const State& now = states_.back();
    if (now.phase != Phase::kReasoning || !IsUsedUp(now)) {
      return IsFed(now) ? behind_->ForcedTokens(most) : std::vector<int32_t>{};
    }
    const auto rest = std::span(rules_.close_ids).subspan(now.num_forced);
    const auto ids =
        rest.first(std::min(rest.size(), static_cast<size_t>(most)));
    return {ids.begin(), ids.end()};
  }

 private:
  enum class Phase : uint8_t { kBefore, kReasoning, kBehind };
  struct State {
    Phase phase;
    uint32_t matched = 0;     // bytes of a tag that the text ends with
    uint32_t num_forced = 0;  // of close_ids
    int64_t num_thought = 0;  // tokens of reasoning
  };

  // The place of a token in a mask; of none that is there, nothing.
  struct Bit {
    Bit(int32_t id, std::span<uint32_t> mask)
        : word(id >= 0 && static_cast<size_t>(id) / 32 < mask.size()
                   ? &mask[static_cast<size_t>(id) / 32]
                   : nullptr),
          bit(1u << (static_cast<uint32_t>(id) % 32)) {}
    bool IsSet() const { return word != nullptr && (*word & bit) != 0; }
    void Set() const {
      if (word != nullptr) *word |= bit;
    }
    void Clear() const {
      if (word != nullptr) *word &= ~bit;
    }
    uint32_t* word;
    uint32_t bit;
  };

  // The grammar holds the token behind this state.
  bool IsFed(const State& state) const {
    return behind_ != nullptr &&
           (!rules_.delays_grammar || state.phase == Phase::kBehind);
  }
  bool IsUsedUp(const State& state) const {
    return rules_.budget && state.num_thought >= *rules_.budget;
  }

  // Only white space may stand before the opening tag.
  void StepBefore(char c, State& next) const {
    if (next.phase != Phase::kBefore) return;
    if (next.matched == 0 && IsSpace(c)) return;
    if (rules_.open[next.matched] != c) {
      next.phase = Phase::kBehind;
      return;
    }
    if (++next.matched == rules_.open.size()) {
      next.phase = Phase::kReasoning;
      next.matched = 0;
    }
  }

  bool IsMixed(int32_t id, uint32_t matched) const {
    const std::string_view text = rules_.piece(id);
    size_t i = 0;
    while (i < text.size() && matched < rules_.close.size()) {
      matched = Matched(rules_.close, matched, text[i++]);
    }
    return matched == rules_.close.size() &&
           !std::ranges::all_of(text.substr(i), IsSpace);
  }

  const std::shared_ptr<const Shared> shared_;
  const ReasoningRules& rules_;
  const std::unique_ptr<GrammarMatcher> behind_;  // or null
  std::vector<State> states_;  // before the output, and behind each token
};

class ReasoningGrammar final : public TokenGrammar {
 public:
  explicit ReasoningGrammar(std::shared_ptr<const Shared> shared)
      : shared_(std::move(shared)) {}
  std::unique_ptr<GrammarMatcher> NewMatcher() const override {
    return std::make_unique<Matcher>(shared_);
  }
  int64_t memory_bytes() const override {
    return shared_->behind == nullptr ? 0 : shared_->behind->memory_bytes();
  }

 private:
  const std::shared_ptr<const Shared> shared_;
};

}  // namespace

TagEnds::Ids TagEnds::With(
    char last, const std::function<std::string_view(int32_t)>& piece,
    int32_t num_ids) {
  MutexLock lock(mu_);
  Ids& known = found_[last];
  if (known != nullptr) return known;
  std::vector<int32_t> found;
  for (int32_t id = 0; id < num_ids; ++id) {
    const std::string_view text = piece(id);
    const size_t at = text.find(last);
    if (at != std::string_view::npos &&
        !std::ranges::all_of(text.substr(at + 1), IsSpace)) {
      found.push_back(id);
    }
  }
  return known = std::make_shared<const std::vector<int32_t>>(std::move(found));
}

std::shared_ptr<const TokenGrammar> MakeReasoningGrammar(
    ReasoningRules rules, std::shared_ptr<const TokenGrammar> behind) {
  auto shared = std::make_shared<Shared>(
      Shared{.rules = std::move(rules), .behind = std::move(behind)});
  ReasoningRules& held = shared->rules;
  if (held.delays_grammar) {
    if (held.tag_ends == nullptr) held.tag_ends = std::make_shared<TagEnds>();
    shared->mixed =
        held.tag_ends->With(held.close.back(), held.piece, held.num_ids);
  }
  return std::make_shared<ReasoningGrammar>(std::move(shared));
}

}  // namespace millrace::models
