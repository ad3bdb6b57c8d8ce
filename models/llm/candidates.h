// The tokens that may still be drawn, narrowed by one sampler after the other,
// each of which sees the probabilities of those that are left:
//
//   Candidates left(kernels, logits, 1.0f, room);
//   left.KeepTopNSigma(1.5f);
//   left.KeepTypical(0.9f);
//   left.Draw(temperature, u);
//
// One candidate always stays, and `min_keep` where it is given, if there are as
// many. Ties go to the lower id. A result depends on the logits and the
// arguments alone.
// Source: llama.cpp's samplers, whose names and rules these have.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/cpu/llm_kernels.h"

namespace millrace::models {

class Candidates {
 public:
  // Buffers, used again by the next one.
  struct Room {
    std::vector<float> weights;   // [vocab]
    std::vector<int32_t> ids;     // ascending between calls
    std::vector<double> shifts;   // [vocab]
    std::vector<float> gathered;  // logits of ids
    std::vector<float> terms;     // of each of ids
  };

  // Probabilities are softmax(logits / temperature); above 0. Some logit is
  // finite; those of tokens that cannot be drawn are -inf.
  Candidates(const KernelTable& kernels, std::span<const float> logits,
             float temperature, Room& room);

  std::span<const int32_t> ids() const { return room_.ids; }  // ascending

  // Logits within n standard deviations of the greatest. Source: Tang et al.
  // 2024.
  void KeepTopNSigma(float n);
  void KeepTopK(int32_t k);
  // Those whose surprise is nearest to the expected one, until they hold more
  // than p. Source: Meister et al. 2022.
  void KeepTypical(float p, int32_t min_keep = 0);
  // The most likely ones, until they hold p.
  void KeepTopP(float p, int32_t min_keep = 0);
  // Those at least p times as likely as the most likely.
  void KeepMinP(float p, int32_t min_keep = 0);
  // All above the threshold go, but for the least likely of them (XTC).
  void DropTop(float threshold, int32_t min_keep = 0);
  // Those whose surprise is at most mu bits (mirostat).
  void KeepSurprise(float mu);
  // The first k, of which a law of Zipf expects a surprise of mu bits (mirostat
  // 1). Its exponent is that of the 100 most likely ones.
  void KeepZipf(float mu);

  // Probabilities are softmax(logits / temperature) from now on; 0: the most
  // likely one is all that is left.
  void Temper(float temperature);

  // A temperature between `temperature` - range and + range, the higher the
  // more even the probabilities are ("entropy-based dynamic temperature", Zhu
  // et al. 2024); not below 0.
  float DynamicTemperature(float temperature, float range,
                           float exponent) const;
  // With u in [0, 1), of the logits divided by `temperature`; 0: the most
  // likely.
  int32_t Draw(float temperature, double u) const;
  // -log2 of the probability.
  float Surprise(int32_t id) const;

 private:
  double Mass() const;
  int32_t Best() const;
  // Keeps the first ones by `before`: `enough` hears each id that is kept and
  // says when it is the last.
  template <typename Before, typename Enough>
  void KeepFirst(Before before, Enough enough);

  const KernelTable& kernels_;
  const std::span<const float> logits_;
  float temperature_;  // of the weights
  Room& room_;
};

}  // namespace millrace::models
