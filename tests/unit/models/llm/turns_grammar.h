// A grammar for tests: the token behind n others is an id whose remainder by
// three is that of n + phase. So a third of the vocabulary may come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "models/grammar/token_grammar.h"

namespace millrace::models {

class TurnsGrammar final : public TokenGrammar {
 public:
  // `at_fill` is called whenever a mask is filled.
  explicit TurnsGrammar(int32_t phase, std::function<void()> at_fill = {})
      : phase_(phase), at_fill_(std::move(at_fill)) {}

  std::unique_ptr<GrammarMatcher> NewMatcher() const override {
    return std::make_unique<Matcher>(phase_, at_fill_);
  }
  int64_t memory_bytes() const override { return 0; }

 private:
  class Matcher final : public GrammarMatcher {
   public:
    Matcher(int32_t turn, const std::function<void()>& at_fill)
        : turn_(turn), at_fill_(at_fill) {}

    void Fill(std::span<uint32_t> mask) override {
      if (at_fill_) at_fill_();
      for (size_t word = 0; word < mask.size(); ++word) {
        mask[word] = 0;
        for (size_t bit = 0; bit < 32; ++bit) {
          const bool allowed = Fits(static_cast<int32_t>(word * 32 + bit));
          mask[word] |= static_cast<uint32_t>(allowed) << bit;
        }
      }
    }
    bool Accept(int32_t id) override {
      if (!Fits(id)) return false;
      ++turn_;
      return true;
    }
    void Rollback(int32_t n) override { turn_ -= n; }

   private:
    bool Fits(int32_t id) const { return id % 3 == turn_ % 3; }

    int32_t turn_;
    const std::function<void()>& at_fill_;  // of the grammar
  };

  const int32_t phase_;
  const std::function<void()> at_fill_;
};

}  // namespace millrace::models
