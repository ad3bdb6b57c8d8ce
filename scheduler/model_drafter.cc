// Sequences that lack only what their last step drew come first. Long chunks
// share what is left of the step, so that the prompt of a newcomer does not
// keep the others from drafting.
#include "scheduler/model_drafter.h"

#include <algorithm>
#include <utility>

#include "config/base/log.h"
#include "scheduler/step_budget.h"

namespace millrace::scheduler {
namespace {

using models::kNoPage;
using models::kSample;

// Whoever lacks no more than this is not catching up.
constexpr int32_t kFewRows = 8;
// Rows of chunks in one step before a row has a price, and always.
constexpr int32_t kFirstCatchUpRows = 64;
constexpr int32_t kLeastCatchUpRows = 16;

// The draft model is asked for its likeliest token, whoever the request is.
void MakeGreedy(models::Runner& runner) {
  models::SamplingParams greedy;
  greedy.temperature = 0;
  for (int32_t slot = 0; slot < runner.info().limits.max_seqs; ++slot) {
    runner.InitSlot(
        {.slot = slot, .sampling = &greedy, .prompt = {}, .output = {}});
  }
}

}  // namespace

ModelDrafter::ModelDrafter(models::Runner& runner,
                           const ModelDrafterOptions& options)
    : options_(options),
      runner_(runner),
      ledger_({.num_pages = runner.info().num_pages,
               .num_slots = runner.info().limits.max_seqs,
               .max_context = runner.info().max_context,
               .prefix_caching = options.prefix_caching,
               .hash_mask = options.hash_mask}),
      batch_(runner.info().limits) {
  MakeGreedy(runner_);
}

void ModelDrafter::Propose(std::span<const DraftRequest> requests) {
  if (broken_ || requests.empty()) return;
  const Clock::Time begun = options_.clock->Now();
  CatchUp(requests);
  while (!lines_.empty() && RunStep()) DraftNext();
  seconds_ +=
      std::chrono::duration<double>(options_.clock->Now() - begun).count();
}

std::optional<int32_t> ModelDrafter::Lacking(const Sequence& sequence) {
  if (broken_ || sequence.num_tokens() > runner_.info().max_context) {
    return std::nullopt;
  }
  ledger_.Sync(sequence);
  return ledger_.Lacking(sequence);
}

void ModelDrafter::CatchUp(std::span<const DraftRequest> requests) {
  lines_.clear();
  batch_.Clear();
  shape_ = {};
  std::vector<const DraftRequest*> late;
  for (const DraftRequest& request : requests) {
    if (request.max_tokens < 1) continue;
    const std::optional<int32_t> lacking = Lacking(*request.sequence);
    if (!lacking) continue;
    if (*lacking > kFewRows) {
      late.push_back(&request);
    } else {
      AddKnown(request, kFewRows);
    }
  }
  int32_t rows_left = MostCatchUpRows();
  for (const DraftRequest* request : late) {
    if (rows_left <= 0) break;
    const int32_t before = batch_.num_tokens;
    AddKnown(*request, rows_left);
    rows_left -= batch_.num_tokens - before;
  }
}

int32_t ModelDrafter::MostCatchUpRows() const {
  if (!cost_.known()) return kFirstCatchUpRows;
  const int32_t most = batch_.limits().max_tokens;
  if (options_.catch_up_seconds <= 0) return most;
  return std::max(RowsWithin(cost_, options_.catch_up_seconds, 0, most),
                  kLeastCatchUpRows);
}

void ModelDrafter::AddKnown(const DraftRequest& request, int32_t most_rows) {
  const Sequence& sequence = *request.sequence;
  const int32_t begin = ledger_.Held(sequence);
  const int32_t lacking = ledger_.Lacking(sequence);
  const int32_t num_rows = std::min(
      {lacking, most_rows, batch_.limits().max_tokens - batch_.num_tokens});
  if (num_rows < 1 ||
      !InVocabulary(std::span(sequence.tokens).subspan(begin, num_rows))) {
    return;
  }
  if (!ledger_.Grow(sequence, begin + num_rows)) return;
  AddRows(request, begin, std::span(sequence.tokens).subspan(begin, num_rows),
          num_rows == lacking);
}

// A model may know ids beyond the shared ones, made to fill its matrices up.
bool ModelDrafter::InVocabulary(std::span<const int32_t> ids) const {
  return std::ranges::all_of(
      ids, [&](int32_t id) { return id < runner_.info().vocab_size; });
}

void ModelDrafter::AddRows(const DraftRequest& request, int32_t begin,
                           std::span<const int32_t> ids, bool draws) {
  const auto num_rows = static_cast<int32_t>(ids.size());
  const int32_t seq = batch_.num_seqs++;
  batch_.q_start()[seq] = batch_.num_tokens;
  for (int32_t i = 0; i < num_rows; ++i) {
    batch_.tokens()[batch_.num_tokens] = ids[i];
    batch_.positions()[batch_.num_tokens++] = begin + i;
  }
  batch_.q_start()[seq + 1] = batch_.num_tokens;
  batch_.kv_len()[seq] = begin + num_rows;
  batch_.slot()[seq] = request.sequence->slot;
  batch_.prompt_rows()[seq] =
      std::clamp(request.sequence->num_prompt - begin, 0, num_rows);
  const auto table = batch_.pages(seq);
  const auto tail =
      std::ranges::copy(ledger_.PagesOf(*request.sequence), table.begin()).out;
  std::fill(tail, table.end(), kNoPage);
  if (draws) {
    const int32_t sample = batch_.num_samples++;
    batch_.sample_rows()[sample] = batch_.num_tokens - 1;
    batch_.sample_seqs()[sample] = seq;
    batch_.score_ids()[sample] = kSample;
  }
  shape_ += ShapeOfRows(begin, num_rows, draws ? 1 : 0);
  lines_.push_back({&request, num_rows, draws});
}

bool ModelDrafter::RunStep() {
  const Clock::Time begun = options_.clock->Now();
  runner_.Launch(batch_);
  const StatusOr<const models::StepResult*> result = runner_.Wait();
  if (!result.ok()) {
    LogError("a step of the draft model failed, it is switched off",
             {{"status", result.status().ToString()}});
    broken_ = true;
    ledger_.Forget();
    for (const Line& line : lines_) *line.request->draft = {};
    return false;
  }
  cost_.Observe(
      shape_,
      std::chrono::duration<double>(options_.clock->Now() - begun).count());
  int32_t sample = 0;
  for (Line& line : lines_) {
    const Sequence& sequence = *line.request->sequence;
    std::vector<int32_t>& draft = line.request->draft->tokens;
    if (draft.empty()) {
      ledger_.Hold(sequence, line.num_rows);
    } else {
      ledger_.Try(sequence, draft.back());
    }
    if (!line.draws) continue;
    const int32_t id = (*result)->ids[sample++];
    line.draws = id < options_.vocab_size;
    if (line.draws) draft.push_back(id);
  }
  return true;
}

// One row for each sequence that may go on: its last draft token.
void ModelDrafter::DraftNext() {
  const std::vector<Line> before = std::exchange(lines_, {});
  batch_.Clear();
  shape_ = {};
  for (const Line& line : before) {
    const DraftRequest& request = *line.request;
    const std::vector<int32_t>& draft = request.draft->tokens;
    if (!line.draws ||
        static_cast<int32_t>(draft.size()) >= request.max_tokens) {
      continue;
    }
    const int32_t position =
        request.sequence->num_tokens() + static_cast<int32_t>(draft.size()) - 1;
    const std::span<const int32_t> last(&draft.back(), 1);
    if (!InVocabulary(last)) continue;
    if (!ledger_.Grow(*request.sequence, position + 1)) continue;
    AddRows(request, position, last, true);
  }
}

}  // namespace millrace::scheduler
