#include "models/graph/plan/stages.h"

#include <algorithm>
#include <unordered_map>

namespace millrace::models::graph {
namespace {

// The stage that is being filled.
class OpenStage {
 public:
  explicit OpenStage(int num_members)
      : work_(static_cast<size_t>(num_members)) {}

  // Members that may run the step in this stage; false: none.
  bool Take(const Step& step, int32_t& member) {
    bool reads = false;
    for (const Slot slot : step.reads) {
      const auto writer = writers_.find(slot);
      if (writer == writers_.end()) continue;
      // Only the writer itself knows that it is done.
      if (writer->second == StepPlace::kTeam || step.splits()) return false;
      if (reads && writer->second != member) return false;
      reads = true;
      member = writer->second;
    }
    if (step.splits()) {
      member = StepPlace::kTeam;
    } else if (!reads) {
      member = static_cast<int32_t>(
          std::min_element(work_.begin(), work_.end()) - work_.begin());
    }
    if (member != StepPlace::kTeam) {
      // One more, so that steps of no bytes are dealt out as well.
      work_[static_cast<size_t>(member)] += step.bytes + step.macs() + 1;
    }
    for (const Slot slot : step.writes) writers_[slot] = member;
    return true;
  }

  void Clear() {
    writers_.clear();
    std::fill(work_.begin(), work_.end(), 0);
  }

 private:
  std::unordered_map<Slot, int32_t> writers_;
  std::vector<double> work_;  // of each member, of steps that do not split
};

}  // namespace

std::vector<StepPlace> PlanStages(
    const std::vector<std::unique_ptr<Step>>& steps, int num_members) {
  std::vector<StepPlace> places(steps.size());
  OpenStage open(num_members);
  int32_t stage = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if ((num_members == 1 && i > 0) ||
        !open.Take(*steps[i], places[i].member)) {
      ++stage;
      open.Clear();
      open.Take(*steps[i], places[i].member);
    }
    places[i].stage = stage;
  }
  return places;
}

}  // namespace millrace::models::graph
