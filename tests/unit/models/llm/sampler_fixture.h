// A sampler with one slot, made with the first draw for as many tokens as its
// logits have. A change of what it is made with counts from Init on.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "models/llm/sampler.h"

namespace millrace::models {

class SamplerTest : public testing::Test {
 protected:
  int32_t Sample(std::vector<float> logits, int32_t position = 0,
                 int32_t score_id = kSample) {
    return SampleDrawn(std::move(logits), position, score_id).id;
  }
  Sampler::Drawn SampleDrawn(std::vector<float> logits, int32_t position = 0,
                             int32_t score_id = kSample) {
    Make(logits.size());
    top_.assign(kMaxTopLogprobs, {});
    return sampler_->Sample(0, position, score_id, drafts_, logits, top_,
                            scratch_, mask_);
  }
  void Make(size_t vocab) {
    if (sampler_ != nullptr) return;
    sampler_ = std::make_unique<Sampler>(*ScalarKernels(),
                                         static_cast<int32_t>(vocab), 1);
    Init();
  }
  void Init() {
    sampler_->InitSlot({.slot = 0,
                        .sampling = &params_,
                        .prompt = prompt_,
                        .output = answer_});
  }
  // The ids that occur in many draws, with their shares.
  std::map<int32_t, double> Shares(const std::vector<float>& logits,
                                   int draws = 20000) {
    std::map<int32_t, double> shares;
    for (int i = 0; i < draws; ++i) shares[Sample(logits, i)] += 1.0 / draws;
    return shares;
  }
  std::set<int32_t> Drawn(const std::vector<float>& logits) {
    std::set<int32_t> ids;
    for (const auto& [id, share] : Shares(logits, 3000)) ids.insert(id);
    return ids;
  }

  SamplingParams params_;
  std::vector<int32_t> prompt_, answer_, drafts_;
  std::vector<uint32_t> mask_;  // empty: all tokens are allowed
  std::unique_ptr<Sampler> sampler_;
  Sampler::Scratch scratch_;
  std::vector<TokenLogprob> top_;
};

}  // namespace millrace::models
