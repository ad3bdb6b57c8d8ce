// Plan to StepBatch. The plan was made within the batch's capacities; a row too
// many is our own mistake and stops the process before it writes past an end.
#include "scheduler/step_builder.h"

#include <algorithm>

#include "config/base/status.h"
#include "models/llm/runner_ahead.h"
#include "scheduler/page_manager.h"

namespace millrace::scheduler {
using models::kNoPage;
using models::kSample;

StepBuilder::StepBuilder(models::StepBatch& batch) : batch_(batch) {
  batch_.Clear();
  batch_.q_start()[0] = 0;
}

int32_t StepBuilder::Add(const Sequence& sequence, int32_t num_rows) {
  const int32_t begin = sequence.num_launched();
  const int32_t end = begin + num_rows;
  const int32_t seq = batch_.num_seqs;
  const int32_t known = sequence.num_tokens();
  const int32_t to_run = sequence.num_to_run();
  const auto num_draft = static_cast<int32_t>(sequence.draft.size());
  CHECK(sequence.running() && num_rows > 0 && end <= to_run + num_draft,
        "rows must be known, drawn or draft tokens of a running sequence");
  CHECK(seq < batch_.limits().max_seqs &&
            batch_.num_tokens + num_rows <= batch_.limits().max_tokens,
        "the plan is larger than a step");
  CHECK(static_cast<int32_t>(sequence.tables.size()) ==
            batch_.limits().page_groups,
        "each page group has its table");

  for (int32_t position = begin; position < end; ++position) {
    const int32_t row = batch_.num_tokens++;
    batch_.tokens()[row] = position < known ? sequence.tokens[position]
                           : position < to_run
                               ? models::DrawnBy(sequence.drawn_by)
                               : sequence.draft[position - to_run];
    batch_.positions()[row] = position;
    if (position + 1 >= to_run) {
      AddSample(row, seq, kSample);
    } else if (sequence.Scores(position)) {
      AddSample(row, seq, sequence.tokens[position + 1]);
    }
  }
  batch_.kv_len()[seq] = end;
  batch_.slot()[seq] = sequence.slot;
  batch_.prompt_rows()[seq] =
      std::clamp(sequence.num_prompt - begin, 0, num_rows);
  for (size_t group = 0; group < sequence.tables.size(); ++group) {
    const std::vector<models::PageId>& pages = sequence.tables[group].pages;
    const auto table = batch_.pages(seq, static_cast<int32_t>(group));
    CHECK(static_cast<size_t>(PagesFor(end)) <= pages.size() &&
              pages.size() <= table.size(),
          "each row needs a page to write to");
    const auto tail = std::ranges::copy(pages, table.begin()).out;
    std::fill(tail, table.end(), kNoPage);
  }
  batch_.q_start()[seq + 1] = batch_.num_tokens;
  ++batch_.num_seqs;
  return seq;
}

void StepBuilder::AddCopy(const models::PageCopy& copy) {
  CHECK(batch_.num_copies < static_cast<int32_t>(batch_.copies().size()),
        "each sequence begins with one copy of each group at most");
  batch_.copies()[batch_.num_copies++] = copy;
}

void StepBuilder::AddSample(int32_t row, int32_t seq, int32_t score_id) {
  CHECK(batch_.num_samples < batch_.limits().max_samples,
        "more rows go through the head than a step has room for");
  const int32_t sample = batch_.num_samples++;
  batch_.sample_rows()[sample] = row;
  batch_.sample_seqs()[sample] = seq;
  batch_.score_ids()[sample] = score_id;
}

}  // namespace millrace::scheduler
