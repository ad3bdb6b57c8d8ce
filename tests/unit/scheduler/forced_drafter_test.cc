#include "scheduler/forced_drafter.h"

#include <gtest/gtest.h>

#include <map>

#include "scheduler/ngram_drafter.h"

namespace millrace::scheduler {
namespace {

// Slots whose next tokens are known.
class ForcedRunner final : public models::Runner {
 public:
  std::map<int32_t, std::vector<int32_t>> forced;

  const models::RunnerInfo& info() const override { return info_; }
  void InitSlot(const models::SlotInit&) override {}
  void Launch(const models::StepBatch&) override {}
  StatusOr<const models::StepResult*> Wait() override {
    return Internal("it runs nothing");
  }
  std::vector<int32_t> ForcedTokens(int32_t slot, int32_t most) override {
    std::vector<int32_t> ids = forced[slot];
    if (static_cast<int32_t>(ids.size()) > most) {
      ids.resize(static_cast<size_t>(most));
    }
    return ids;
  }

 private:
  models::RunnerInfo info_;
};

TEST(ForcedDrafter, ForcedTextGoesBeforeWhatIsLookedUp) {
  ForcedRunner runner;
  runner.forced = {{0, {7, 8, 9}}, {2, {7}}, {3, {2}}, {4, {2, 3}}};
  ForcedDrafter drafter(runner, std::make_unique<NgramDrafter>(1, 3));
  std::vector<Sequence> sequences(5);
  std::vector<Draft> drafts(5);
  for (int32_t i = 0; i < 5; ++i) {
    sequences[i].tokens = {1, 2, 3, 1};
    sequences[i].slot = i;
  }
  const DraftRequest requests[] = {{&sequences[0], 2, &drafts[0]},
                                   {&sequences[1], 2, &drafts[1]},
                                   {&sequences[2], 0, &drafts[2]},
                                   {&sequences[3], 2, &drafts[3]},
                                   {&sequences[4], 2, &drafts[4]}};
  drafter.Propose(requests);
  EXPECT_EQ(drafts[0].tokens, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(drafts[0].kind, kForcedKind);
  EXPECT_EQ(drafts[1].tokens, (std::vector<int32_t>{2, 3}));
  EXPECT_NE(drafts[1].kind, kForcedKind);
  EXPECT_TRUE(drafts[2].tokens.empty()) << "none were asked for";
  EXPECT_EQ(drafts[3].tokens, (std::vector<int32_t>{2, 3}));
  EXPECT_NE(drafts[3].kind, kForcedKind) << "it goes on behind what is forced";
  EXPECT_EQ(drafts[4].tokens, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(drafts[4].kind, kForcedKind) << "it does not go on";
}

}  // namespace
}  // namespace millrace::scheduler
