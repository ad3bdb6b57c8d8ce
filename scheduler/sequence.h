// One sequence: its tokens, how far they are computed, and what it holds.
// Plain and deterministic: no clock, no thread, no stream.
//
//   tokens    [ p0 p1 p2 p3 | o0 o1 ]      prompt, then output
//   computed    ^  ^  ^  ^    ^            these have their KV in pages
//                                 o1 is known but not computed: the next row
//
// Rows of a step that was launched and whose results are not read are in
// flight. Such a step may draw a token that is not known yet; the next step may
// compute it nonetheless (models/llm/runner_ahead.h):
//
//   computed    ^  ^  ^  ^    ^            and o1's row is in flight:
//                                 o1       it draws o2, the next row
//
// Running means holding a slot. A waiting sequence holds neither slot nor
// pages; after a preemption it comes back and runs its prompt and its output so
// far as one prompt, less what it finds computed.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "models/llm/page_store.h"
#include "models/llm/step.h"

namespace millrace::scheduler {

// The pages of one page group (models/llm/page_groups.h), in order of position.
struct PageTable {
  std::vector<models::PageId> pages;
  // Places from the first that lie before the window: kNoPage.
  int32_t num_given_back = 0;

  int32_t size() const { return static_cast<int32_t>(pages.size()); }
};

struct Sequence {
  std::vector<int32_t> tokens;
  int32_t num_prompt = 0;
  int32_t max_output = 0;  // tokens
  bool score_prompt = false;
  int32_t priority = 0;      // lower runs first
  uint32_t tenant = 0;       // its number
  bool tenant_alone = true;  // no other one is known
  int64_t start_tag = 0;     // order within a priority, see FairOrder
  int64_t arrival = 0;       // unique; breaks ties of tags

  int32_t num_computed = 0;
  int32_t rows_in_flight = 0;  // from num_computed on
  // The sample of the step launched last that draws the token behind the known
  // ones; below 0: none does.
  int32_t drawn_by = -1;
  // Prompt log-probabilities are known for the rows before this one; a
  // preemption does not ask for them twice.
  int32_t num_scored = 0;
  std::vector<PageTable> tables = std::vector<PageTable>(1);  // of each group
  int32_t num_registered = 0;         // pages, from the first; see PageManager
  std::vector<uint64_t> page_hashes;  // of full pages, as far as asked for
  // Of the adapter that changes its keys and values; 0: none.
  uint32_t adapter = 0;
  // What stands in place of some embeddings; null: nothing. Its job holds it.
  const models::PromptEmbeddings* embeddings = nullptr;
  // The same where the prefix cache keeps generated tokens apart from those of
  // prompts, or where there is an adapter or an image: `tokens`, marked, and
  // hashes of those. See KvLedger.
  std::vector<int32_t> marked_tokens;
  std::vector<uint64_t> marked_hashes;
  // Of full pages in the store outside the pool, as far as asked for.
  std::vector<models::PageKey> page_keys;
  uint64_t fetch = 0;       // ticket of what is fetched for it; 0: nothing
  int32_t fetch_from = -1;  // first page of its last fetch since it waits
  // Draft tokens behind the last known one, to be checked in this step.
  std::vector<int32_t> draft;
  // Mirostat's bound behind the token drawn last; see SlotInit.
  std::optional<float> mirostat_mu;
  // Tokens it found computed at its first start; -1: it has not started.
  int32_t num_found = -1;
  // The same for all sequences of one request: they share the prompt. Null: it
  // is alone. Compared, never followed.
  const void* fork_group = nullptr;
  int32_t slot = -1;

  bool running() const { return slot >= 0; }
  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_output() const { return num_tokens() - num_prompt; }
  // Position of the next row.
  int32_t num_launched() const { return num_computed + rows_in_flight; }
  // Tokens that rows may compute: the known ones, and one that is being drawn
  // unless the completion ends with it.
  int32_t num_to_run() const {
    const bool goes_on = drawn_by >= 0 && num_output() + 1 < max_output;
    return num_tokens() + (goes_on ? 1 : 0);
  }
  std::span<const int32_t> prompt() const {
    return std::span(tokens).first(num_prompt);
  }
  std::span<const int32_t> output() const {
    return std::span(tokens).subspan(num_prompt);
  }
  // The row at this position scores the prompt token after it.
  bool Scores(int32_t position) const {
    return score_prompt && position >= num_scored && position + 1 < num_prompt;
  }
  // Lower runs first and is preempted last.
  bool Before(const Sequence& other) const {
    return std::tuple(priority, start_tag, arrival) <
           std::tuple(other.priority, other.start_tag, other.arrival);
  }
};

}  // namespace millrace::scheduler
