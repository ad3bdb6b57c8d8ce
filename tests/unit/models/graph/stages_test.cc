#include "models/graph/plan/stages.h"

#include <gtest/gtest.h>

#include <utility>

namespace millrace::models::graph {
namespace {

class FakeStep : public Step {
 public:
  FakeStep(bool splits, std::vector<Slot> in, Slot out) : splits_(splits) {
    reads = std::move(in);
    writes = {out};
    bytes = 100;
  }
  Status Run(const Slots&, const Team&) const override { return OkStatus(); }
  bool splits() const override { return splits_; }
  std::string Text() const override { return "Fake"; }

 private:
  const bool splits_;
};

class Steps {
 public:
  Steps& Team(std::vector<Slot> in, Slot out) {
    return Add(true, std::move(in), out);
  }
  Steps& Alone(std::vector<Slot> in, Slot out) {
    return Add(false, std::move(in), out);
  }
  std::vector<StepPlace> Plan(int num_members = 2) const {
    return PlanStages(steps_, num_members);
  }

 private:
  Steps& Add(bool splits, std::vector<Slot> in, Slot out) {
    steps_.push_back(std::make_unique<FakeStep>(splits, std::move(in), out));
    return *this;
  }
  std::vector<std::unique_ptr<Step>> steps_;
};

constexpr int32_t kTeam = StepPlace::kTeam;
using Places = std::vector<StepPlace>;

TEST(Stages, ThreeProductsOfOneValueShareAStage) {
  const auto places =
      Steps().Team({0}, 1).Team({0}, 2).Team({0}, 3).Team({1, 2, 3}, 4).Plan();
  EXPECT_EQ(places, (Places{{0, kTeam}, {0, kTeam}, {0, kTeam}, {1, kTeam}}));
}

TEST(Stages, AStepWaitsForWhatTheTeamWrites) {
  EXPECT_EQ(Steps().Team({0}, 1).Team({1}, 2).Alone({2}, 3).Plan(),
            (Places{{0, kTeam}, {1, kTeam}, {2, 0}}));
}

TEST(Stages, BranchesOfStepsThatDoNotSplitRunSideBySide) {
  EXPECT_EQ(
      Steps().Alone({0}, 1).Alone({1}, 2).Alone({0}, 3).Alone({3}, 4).Plan(),
      (Places{{0, 0}, {0, 0}, {0, 1}, {0, 1}}));
}

TEST(Stages, AStepThatReadsOfTwoMembersWaitsForBoth) {
  EXPECT_EQ(Steps().Alone({0}, 1).Alone({0}, 2).Alone({1, 2}, 3).Plan(),
            (Places{{0, 0}, {0, 1}, {1, 0}}));
}

TEST(Stages, TheTeamWaitsForOneMember) {
  EXPECT_EQ(Steps().Alone({0}, 1).Team({1}, 2).Plan(),
            (Places{{0, 0}, {1, kTeam}}));
}

TEST(Stages, AMemberByItselfSharesMemoryFromStepToStep) {
  EXPECT_EQ(Steps().Team({0}, 1).Team({0}, 2).Alone({0}, 3).Plan(1),
            (Places{{0, kTeam}, {1, kTeam}, {2, 0}}));
}

}  // namespace
}  // namespace millrace::models::graph
