// Masks filled by a team against those of one call for each sequence.
#include "models/llm/cpu/row_masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "tests/unit/models/llm/turns_grammar.h"

namespace millrace::models {
namespace {

constexpr int32_t kVocab = 70;
constexpr int32_t kSlots = 8;

class RowMasksTest : public testing::Test {
 protected:
  void Init(int32_t slot, std::shared_ptr<const TokenGrammar> grammar) {
    SamplingParams params;
    params.grammar = std::move(grammar);
    sampler_.InitSlot(
        {.slot = slot, .sampling = &params, .prompt = {}, .output = {}});
  }
  // The rows draw, each behind a token of `tokens`, or score their own.
  void AddSequence(int32_t slot, const std::vector<int32_t>& tokens,
                   int32_t score_id = kSample) {
    const int32_t seq = batch_.num_seqs++;
    batch_.slot()[seq] = slot;
    for (const int32_t id : tokens) {
      batch_.sample_rows()[batch_.num_samples] = batch_.num_tokens;
      batch_.sample_seqs()[batch_.num_samples] = seq;
      batch_.score_ids()[batch_.num_samples++] = score_id;
      batch_.tokens()[batch_.num_tokens++] = id;
    }
  }
  void FillOn(int num_threads) {
    std::vector<std::jthread> team;
    for (int i = 0; i < num_threads; ++i) {
      team.emplace_back([this] { masks_.Fill(); });
    }
  }
  std::vector<int32_t> Allowed(int32_t sample) const {
    const auto mask = masks_.Of(sample);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < kVocab; ++id) {
      if (mask.empty() || IsAllowed(mask, id)) ids.push_back(id);
    }
    return ids;
  }
  static std::vector<int32_t> Turn(int32_t n) {
    std::vector<int32_t> ids;
    for (int32_t id = n % 3; id < kVocab; id += 3) ids.push_back(id);
    return ids;
  }

  Sampler sampler_{*ScalarKernels(), kVocab, kSlots};
  RowMasks masks_{sampler_};
  StepBatch batch_{
      StepLimits{.max_tokens = 64, .max_seqs = kSlots, .max_samples = 64}};
};

TEST_F(RowMasksTest, EachRowGetsThatOfItsSequenceWhoeverFillsIt) {
  for (int32_t slot = 0; slot < kSlots - 1; ++slot) {
    Init(slot, std::make_shared<TurnsGrammar>(slot));
  }
  Init(kSlots - 1, nullptr);
  for (const int num_threads : {1, 2, 4}) {
    for (int round = 0; round < 20; ++round) {
      batch_.Clear();
      AddSequence(0, {60, 0, 1, 2});     // three draft tokens in turn
      AddSequence(kSlots - 1, {60});     // all may come
      AddSequence(1, {60, 61}, 5);       // scored, nothing is drawn
      AddSequence(2, {60, 2, 4, 4, 4});  // the second draft token is wrong
      for (int32_t slot = 3; slot < kSlots - 1; ++slot) AddSequence(slot, {9});
      masks_.Begin(batch_);
      ASSERT_FALSE(masks_.empty());
      FillOn(num_threads);
      for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(Allowed(i), Turn(i)) << i;
      EXPECT_TRUE(masks_.Of(4).empty());
      EXPECT_TRUE(masks_.Of(5).empty());
      EXPECT_TRUE(masks_.Of(6).empty());
      EXPECT_EQ(Allowed(7), Turn(2));
      EXPECT_EQ(Allowed(8), Turn(3));
      EXPECT_EQ(Allowed(9).size(), size_t{kVocab});
      for (int32_t slot = 3; slot < kSlots - 1; ++slot) {
        EXPECT_EQ(Allowed(9 + slot), Turn(slot)) << slot;
      }
    }
  }
}

TEST_F(RowMasksTest, AStepWithoutGrammarsHasNone) {
  Init(0, nullptr);
  AddSequence(0, {1, 2});
  masks_.Begin(batch_);
  EXPECT_TRUE(masks_.empty());
  EXPECT_TRUE(masks_.Of(0).empty());
  EXPECT_TRUE(masks_.Of(1).empty());
}

// Each waits for the other one.
TEST_F(RowMasksTest, SequencesAreFilledSideBySide) {
  std::mutex mu;
  std::condition_variable changed;
  int begun = 0;
  bool met = true;
  const auto meet = [&] {
    std::unique_lock lock(mu);
    ++begun;
    changed.notify_all();
    met = changed.wait_for(lock, std::chrono::seconds(20), [&] {
      return begun == 2;
    }) && met;
  };
  Init(0, std::make_shared<TurnsGrammar>(0, meet));
  Init(1, std::make_shared<TurnsGrammar>(1, meet));
  AddSequence(0, {7});
  AddSequence(1, {7});
  masks_.Begin(batch_);
  FillOn(2);
  EXPECT_TRUE(met);
  EXPECT_EQ(Allowed(0), Turn(0));
  EXPECT_EQ(Allowed(1), Turn(1));
}

}  // namespace
}  // namespace millrace::models
