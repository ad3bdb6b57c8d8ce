// Writes rows of sequences into the flat batch of one step.
//
//   StepBuilder builder(batch);           // cleared
//   int32_t seq = builder.Add(sequence, 16);
//
// The sequence has its slot and its pages. Rows that score prompt tokens, the
// last row there is, which samples, and rows of draft tokens go through the
// head. The row of a token that a step in flight draws names its sample there.
//
// Engine thread only.
#pragma once

#include <cstdint>

#include "models/llm/step.h"
#include "scheduler/sequence.h"

namespace millrace::scheduler {

class StepBuilder {
 public:
  explicit StepBuilder(models::StepBatch& batch);

  // The next `num_rows` rows of a sequence behind those in flight, beyond its
  // tokens those of its draft; gives its index in the batch.
  int32_t Add(const Sequence& sequence, int32_t num_rows);

  // A page to be copied before any row runs.
  void AddCopy(const models::PageCopy& copy);

 private:
  void AddSample(int32_t row, int32_t seq, int32_t score_id);

  models::StepBatch& batch_;
};

}  // namespace millrace::scheduler
