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
  void Typical(double p) {
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
      if (held > p) break;
    }
    tokens_.resize(kept);
    Normalise();
  }
  void TopP(double p) {
    double held = 0;
    size_t kept = 0;
    while (kept < tokens_.size()) {
      held += tokens_[kept++].p;
      if (held >= p) break;
    }
    tokens_.resize(kept);
    Normalise();
  }
  void MinP(double p) {
    const double least = tokens_[0].p * p;
    std::erase_if(tokens_, [&](const Token& token) { return token.p < least; });
    Normalise();
  }
  void Xtc(double threshold) {
    if (threshold > 0.5 || tokens_.size() < 2) return;
    size_t last = 0;
    for (size_t i = 0; i < tokens_.size() && tokens_[i].p >= threshold; ++i) {
      last = i;
    }
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<long>(last));
    Normalise();
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
    for (int step = 0; step < 7; ++step) {
      if (random() % 2 == 0) continue;
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
          left.KeepTypical(f);
          plain.Typical(double{f});
          break;
        case 3:
          left.KeepTopP(f);
          plain.TopP(double{f});
          break;
        case 4:
          left.KeepMinP(f / 4);
          plain.MinP(double{f / 4});
          break;
        case 5:
          left.DropTop(f / 4);
          plain.Xtc(double{f / 4});
          break;
        default:
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
