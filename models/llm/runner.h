// Runner: a loaded language model that runs steps. The scheduler owns one
// through this interface and knows nothing else of it; tests give a fake.
//
// Engine thread only, but for info() which never changes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/step.h"
#include "models/llm/step_account.h"

namespace millrace::models {

struct RunnerInfo {
  StepLimits limits;
  int32_t vocab_size = 0;
  int32_t max_context = 0;  // tokens of one sequence, prompt and completion
  int32_t num_pages = 0;    // of the KV pool
  // Of each page group: keys that a row sees at most in its layers, its own the
  // last. Pages of the group that lie before them may be taken away (kNoPage).
  // 0: some layer sees all, which is so of the first group of several.
  std::vector<int32_t> windows = {0};
  // Rows of prompts are computed in another way than generated ones (see
  // StepBatch::prompt_rows), so the same token has other keys and values.
  bool kv_depends_on_role = false;
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual const RunnerInfo& info() const = 0;

  // See SlotInit. Slots are [0, limits.max_seqs).
  virtual void InitSlot(const SlotInit& init) = 0;

  // Starts a step. On CPU the calling thread is worker 0 of the team and the
  // step has run when this returns; on a device it returns at once. The batch
  // may be refilled after Wait.
  virtual void Launch(const StepBatch& batch) = 0;

  // Ends the step launched last. A device fault is a Status; the KV pages the
  // step wrote are then worthless. The result lives until the next Launch.
  virtual StatusOr<const StepResult*> Wait() = 0;

  // What the step ended last took and cost; zeros for runners that measure
  // nothing.
  virtual StepAccount account() const { return {}; }
  // From the next step on, each writes its phases to `trace`, which outlives
  // them; null: no more. Without effect in runners that measure nothing.
  virtual void TraceSteps(StepTrace* /*trace*/) {}
  // Between two steps: makes a little of the memory ready that coming steps
  // will write to, pages from `first_unused` on, which were never in a step.
  // False once there is nothing left to do.
  virtual bool PrepareAhead(int32_t /*first_unused*/) { return false; }
  // Draft tokens that a grammar of the slot leaves no choice about, `most` at
  // most; between two steps only.
  virtual std::vector<int32_t> ForcedTokens(int32_t /*slot*/,
                                            int32_t /*most*/) {
    return {};
  }
  // Measures the machine; called once, before the first Launch.
  virtual RunnerRoofline MeasureRoofline() { return {}; }
};

// What a runner offers beside Runner when it can show whole logits.
class LogitsView {
 public:
  virtual ~LogitsView() = default;
  // Of sample i of the last step, [vocab]; unchanged when the row was scored.
  virtual std::span<const float> Logits(int32_t sample) const = 0;
};

}  // namespace millrace::models
