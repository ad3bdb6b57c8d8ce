// Each sampler against a plain one: sorts everything, in double precision, by
// the definitions of llama.cpp.
#include "models/llm/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace millrace::models {
namespace {

struct Token {
  int32_t id;
  double logit;
  double p;
};

// Sorted by probability, probabilities of those that are left.
class Plain {
 public:
  explicit Plain(const std::vector<float>& logits) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (std::isfinite(logits[i])) {
        tokens_.push_back({static_cast<int32_t>(i), logits[i], 0});
      }
    }
    Normalise();
  }

  void TopNSigma(double n) {
    double mean = 0;
    for (const Token& token : tokens_) mean += token.logit;
    mean /= static_cast<double>(tokens_.size());
    double variance = 0;
    for (const Token& token : tokens_) {
      variance += std::pow(token.logit - mean, 2);
    }
    variance /= static_cast<double>(tokens_.size());
    const double least = tokens_[0].logit - n * std::sqrt(variance);
    std::erase_if(tokens_,
                  [&](const Token& token) { return token.logit < least; });
    Normalise();
  }
  void TopK(size_t k) {
    if (k < tokens_.size()) tokens_.resize(k);
    Normalise();
  }
  void Typical(double p, size_t min_keep) {
    double entropy = 0;
    for (const Token& token : tokens_) entropy -= token.p * std::log(token.p);
    std::stable_sort(tokens_.begin(), tokens_.end(),
                     [&](const Token& a, const Token& b) {
                       return std::abs(-std::log(a.p) - entropy) <
                              std::abs(-std::log(b.p) - entropy);
                     });
    double held = 0;
    size_t kept = 0;
    while (kept < tokens_.size()) {
      held += tokens_[kept++].p;
      if (held > p && kept >= min_keep) break;
    }
    tokens_.resize(kept);
    Normalise();
  }
  void TopP(double p, size_t min_keep) {
    double held = 0;
    size_t kept = 0;
    while (kept < tokens_.size()) {
      held += tokens_[kept++].p;
      if (held >= p && kept >= min_keep) break;
    }
    tokens_.resize(kept);
    Normalise();
  }
  void MinP(double p, size_t min_keep) {
    const double least = tokens_[0].p * p;
    size_t kept = 0;
    while (kept < tokens_.size() &&
           (tokens_[kept].p >= least || kept < min_keep)) {
      ++kept;
    }
    TopK(kept);
  }
  void Xtc(double threshold, size_t min_keep) {
    if (threshold > 0.5 || tokens_.size() < 2) return;
    size_t last = 0;
    for (size_t i = 0; i < tokens_.size() && tokens_[i].p >= threshold; ++i) {
      last = i;
    }
    if (tokens_.size() - last < min_keep) return;
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<long>(last));
    Normalise();
  }
  void Temper(double temperature) {
    for (Token& token : tokens_) token.logit /= temperature;
    Normalise();
  }
  // Source: algorithm 1 of the paper of mirostat.
  void Zipf(double mu, double vocab) {
    double products = 0;
    double squares = 0;
    for (size_t i = 0; i < 99 && i + 1 < tokens_.size(); ++i) {
      const auto rank = static_cast<double>(i + 1);
      const double t = std::log((rank + 1) / rank);
      products += t * std::log(tokens_[i].p / tokens_[i + 1].p);
      squares += t * t;
    }
    const double s = products / squares;
    const double epsilon = s - 1;
    const double k = std::pow(
        epsilon * std::pow(2, mu) / (1 - std::pow(vocab, -epsilon)), 1 / s);
    if (k < static_cast<double>(tokens_.size())) {
      TopK(std::max<size_t>(static_cast<size_t>(k), 1));
    }
  }
  double Temperature(double temperature, double range, double exponent) const {
    if (tokens_.size() <= 1) return temperature;
    double entropy = 0;
    for (const Token& token : tokens_) entropy -= token.p * std::log(token.p);
    const double least = std::max(0.0, temperature - range);
    return least +
           (temperature + range - least) *
               std::pow(entropy / std::log(static_cast<double>(tokens_.size())),
                        exponent);
  }
  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (const Token& token : tokens_) ids.push_back(token.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

 private:
  void Normalise() {
    std::stable_sort(
        tokens_.begin(), tokens_.end(),
        [](const Token& a, const Token& b) { return a.logit > b.logit; });
    double sum = 0;
    for (const Token& token : tokens_) sum += std::exp(token.logit);
    for (Token& token : tokens_) token.p = std::exp(token.logit) / sum;
  }
  std::vector<Token> tokens_;
};

std::vector<int32_t> Ids(const Candidates& candidates) {
  return {candidates.ids().begin(), candidates.ids().end()};
}

TEST(Candidates, AgreeWithAPlainReference) {
  std::mt19937 random(17);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Candidates::Room room;
  int narrowed = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<float> logits(1 + random() % 300);
    for (float& x : logits) {
      x = i % 5 == 0 && random() % 4 == 0
              ? -INFINITY
              : static_cast<float>(uniform(-1, 1) * (1 + i % 7));
    }
    logits[random() % logits.size()] = 0.5f;
    Candidates left(*ScalarKernels(), logits, 1.0f, room);
    Plain plain(logits);
    std::vector<int> steps = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    std::ranges::shuffle(steps, random);
    bool tempered = false;
    for (const int step : steps) {
      if (random() % 2 == 0) continue;
      const auto keep = static_cast<int32_t>(random() % 3 * (random() % 20));
      const auto least = static_cast<size_t>(keep);
      const double x = uniform(0.01, 0.99);
      const auto f = static_cast<float>(x);
      const auto k = static_cast<int32_t>(1 + random() % 100);
      switch (step) {
        case 0:
          left.KeepTopNSigma(3 * f);
          plain.TopNSigma(double{3 * f});
          break;
        case 1:
          left.KeepTopK(k);
          plain.TopK(static_cast<size_t>(k));
          break;
        case 2:
          left.KeepTypical(f, keep);
          plain.Typical(double{f}, least);
          break;
        case 3:
          left.KeepTopP(f, keep);
          plain.TopP(double{f}, least);
          break;
        case 4:
          left.KeepMinP(f / 4, keep);
          plain.MinP(double{f / 4}, least);
          break;
        case 5:
          left.DropTop(f / 4, keep);
          plain.Xtc(double{f / 4}, least);
          break;
        case 6:
          left.Temper(0.4f + f);
          plain.Temper(double{0.4f + f});
          tempered = true;
          break;
        case 7:
          // Logits of -inf count as tokens of the vocabulary.
          left.KeepZipf(8 * f);
          plain.Zipf(double{8 * f}, static_cast<double>(logits.size()));
          break;
        default:
          if (tempered) break;  // logits of the plain one are divided
          EXPECT_NEAR(left.DynamicTemperature(0.8f, f, 1.5f),
                      plain.Temperature(double{0.8f}, double{f}, 1.5), 1e-4);
          break;
      }
      ASSERT_EQ(Ids(left), plain.ids()) << "round " << i << ", step " << step;
    }
    narrowed += plain.ids().size() < logits.size() ? 1 : 0;
  }
  EXPECT_GT(narrowed, 400);
}

TEST(Candidates, MinKeepStopsACut) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {0, 4 * ln2, 2 * ln2, ln2};  // 1 16 4 2
  Candidates::Room room;
  const auto left = [&](auto cut) {
    Candidates candidates(*ScalarKernels(), logits, 1.0f, room);
    cut(candidates);
    return Ids(candidates);
  };
  using Kept = std::vector<int32_t>;
  EXPECT_EQ(left([](auto& c) { c.KeepTopP(0.1f); }), (Kept{1}));
  EXPECT_EQ(left([](auto& c) { c.KeepTopP(0.1f, 2); }), (Kept{1, 2}));
  EXPECT_EQ(left([](auto& c) { c.KeepMinP(0.9f, 3); }), (Kept{1, 2, 3}));
  EXPECT_EQ(left([](auto& c) { c.KeepMinP(0.01f, 1); }), (Kept{0, 1, 2, 3}));
  EXPECT_EQ(left([](auto& c) { c.KeepTypical(0.01f, 9); }), (Kept{0, 1, 2, 3}));
  // 16 and 4 of 23 are above; without the first, three are left.
  EXPECT_EQ(left([](auto& c) { c.DropTop(0.1f, 3); }), (Kept{0, 2, 3}));
  EXPECT_EQ(left([](auto& c) { c.DropTop(0.1f, 4); }), (Kept{0, 1, 2, 3}));
}

TEST(Candidates, ALawOfZipfTellsHowManyReachASurprise) {
  // Logits -2 ln(rank): the exponent is 2. With 2^mu = 100 and 50 tokens k is
  // (100 / (1 - 1/50))^(1/2), 10.1.
  std::vector<float> logits;
  for (int rank = 1; rank <= 50; ++rank) {
    logits.push_back(-2 * std::log(static_cast<float>(rank)));
  }
  Candidates::Room room;
  const auto mu = static_cast<float>(std::log2(100.0));
  Candidates left(*ScalarKernels(), logits, 1.0f, room);
  left.KeepZipf(mu);
  EXPECT_EQ(left.ids().size(), 10u);
  // Even ones: 2^mu / (50 - 1) decides between one and all.
  const std::vector<float> even(50, 1.0f);
  Candidates one(*ScalarKernels(), even, 1.0f, room);
  one.KeepZipf(5);
  EXPECT_EQ(Ids(one), (std::vector<int32_t>{0}));
  Candidates all(*ScalarKernels(), even, 1.0f, room);
  all.KeepZipf(6);
  EXPECT_EQ(all.ids().size(), 50u);
  const std::vector<float> single = {3};
  Candidates only(*ScalarKernels(), single, 1.0f, room);
  only.KeepZipf(0);
  EXPECT_EQ(only.ids().size(), 1u);
}

TEST(Candidates, TemperChangesWhatLaterCutsSee) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {0, ln2, -INFINITY};  // 1 and 2 of 3
  Candidates::Room room;
  Candidates cold(*ScalarKernels(), logits, 1.0f, room);
  cold.KeepTopP(0.67f);
  EXPECT_EQ(Ids(cold), (std::vector<int32_t>{0, 1}));
  Candidates warm(*ScalarKernels(), logits, 1.0f, room);
  warm.Temper(0.5f);  // 1 and 4 of 5
  warm.KeepTopP(0.67f);
  EXPECT_EQ(Ids(warm), (std::vector<int32_t>{1}));
  Candidates greedy(*ScalarKernels(), logits, 1.0f, room);
  greedy.Temper(0);
  EXPECT_EQ(Ids(greedy), (std::vector<int32_t>{1}));
}

TEST(Candidates, ValuesThatTurnASamplerOffKeepAll) {
  const std::vector<float> logits = {1, 2, 3};
  Candidates::Room room;
  Candidates left(*ScalarKernels(), logits, 1.0f, room);
  left.KeepTopNSigma(0);
  left.KeepTopK(0);
  left.KeepTypical(1);
  left.KeepTopP(1);
  left.KeepMinP(0);
  left.DropTop(0.51f);
  EXPECT_EQ(Ids(left), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(left.DynamicTemperature(0.7f, 0, 1), 0.7f);
}

TEST(Candidates, OneStaysThoughNoneIsLikelyEnough) {
  const std::vector<float> logits = {1, 1, 1};
  Candidates::Room room;
  Candidates left(*ScalarKernels(), logits, 1.0f, room);
  left.KeepSurprise(-3);
  EXPECT_EQ(Ids(left), (std::vector<int32_t>{0}));
  EXPECT_EQ(left.Draw(1.0f, 0.99), 0);
}

TEST(Candidates, DrawFollowsTheTemperature) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {2 * ln2, 0, ln2};
  Candidates::Room room;
  Candidates left(*ScalarKernels(), logits, 1.0f, room);
  // At temperature 1/2: 16, 1, 4 of 21.
  EXPECT_EQ(left.Draw(0.5f, 15.9 / 21), 0);
  EXPECT_EQ(left.Draw(0.5f, 16.5 / 21), 1);
  EXPECT_EQ(left.Draw(0.5f, 17.1 / 21), 2);
  EXPECT_EQ(left.Draw(0, 0.99), 0);
}

}  // namespace
}  // namespace millrace::models
