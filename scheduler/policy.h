// The scheduling policy: which sequences run in the next step, and with how
// many rows (one row computes one token). A pure function of integers: no
// thread, no clock, no memory between steps.
//
//   1. Decodes first: every running sequence that lacks one row, also beyond
//      the token budget of the step. Then, as far as the budget goes, the
//      draft tokens that may follow their last tokens.
//   2. Then prompts of running sequences, in chunks, until the token budget of
//      the step is spent, or that for prompts when there are decodes. Prompts
//      get one row at least, however many decodes there are.
//   3. Then waiting sequences, by priority and start tag (the fair order
//      between tenants; of one tenant that of arrival), as long as a slot,
//      tokens and pages for all they know so far are there. The first that does
//      not fit stops the admission: none overtakes, hence none starves
//      within a priority. The one exception: a sequence whose next page a
//      running one is computing right now is left out for as long as that goes
//      on, because it will then start behind it; so is one whose pages are
//      being fetched.
//
// Between tenants two things more hold. A waiting sequence that stands before
// all running prompts, and is of another tenant than the first of them, starts
// before they go on: a flood of long prompts does not keep others waiting. And
// where several tenants are known, none takes the last eighth of the slots (one
// at least, of two or more), also while no other tenant asks for any. What
// hold_back.h adds is seen here as `held`.
//
// A prompt of a model with windows may lack its next page (kv_ledger.h). Then
// it computes the rows that its pages hold, or none in this step, and no
// waiting sequence starts until it has the page.
//
// When a decode needs a page and none is available, or all that run are prompts
// that wait for one, the last running sequence
// (lowest priority, then youngest) is preempted: it loses its pages and waits
// to be computed again. The first running sequence is never preempted, so with
// a pool that holds one full sequence all work ends. Pages of the prefix cache
// that no sequence holds count as available.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "models/llm/step.h"
#include "scheduler/sequence.h"

namespace millrace::scheduler {

// What the policy sees of a sequence.
struct SequenceView {
  bool running = false;
  uint32_t tenant = 0;
  bool tenant_alone = true;  // its tenant may take all slots
  bool held = false;         // gets no rows in this step (hold_back.h)
  // Prompt and completion so far, and a token that a step in flight draws.
  int32_t num_tokens = 0;
  // Of a waiting sequence: what it finds computed by others when it starts, at
  // most num_tokens - 1. Rows in flight count as computed: a sequence that
  // waits for them alone has num_tokens of them, and gets no rows.
  int32_t num_computed = 0;
  // Held, of the first page group; of a waiting sequence: those it would share
  // with others.
  int32_t num_pages = 0;
  int32_t num_tables = 1;  // page groups of the model
  // Of a running sequence: those of the other groups.
  std::span<const PageTable> more_tables = {};
  // Of all these, places of pages that were given back.
  int32_t num_given_back = 0;
  // Of a waiting sequence: pages that it takes when it starts, beyond those it
  // shares; absent: all that its tokens need.
  std::optional<int32_t> num_at_start = {};
  // Of a running sequence: those of its pages that others may hold too. A
  // preemption gives such a page back when it takes the last holder.
  std::span<const models::PageId> shared = {};
  // Of a waiting sequence: how many of the pages it would share have no holder,
  // so that they count as available until it takes them.
  int32_t num_revived = 0;
  // Of a waiting sequence: the view that computes, or would first compute, the
  // page it needs next; -1: none does.
  int32_t waits_for = -1;
  // Of a waiting sequence: pages that it needs are on their way from a store.
  bool fetching = false;
  // Of a sequence that decodes: draft tokens that wait to be checked behind its
  // last known token.
  int32_t num_draft = 0;
  // Rows in [score_begin, score_end) also leave through the head.
  int32_t score_begin = 0;
  int32_t score_end = 0;
};
// Of a running sequence, or a waiting one that finds nothing computed.
SequenceView View(const Sequence& sequence);

struct PolicyLimits {
  // Budget of rows for a step. Only decodes, and one row of a prompt beside
  // them, may exceed it: a step has max(max_tokens, max_seqs) rows at most.
  int32_t max_tokens = 0;
  int32_t max_seqs = 0;     // running together
  int32_t max_samples = 0;  // rows through the head, at least 1
  // Rows of prompts, newcomers included, in a step that also decodes.
  int32_t max_prompt_rows = std::numeric_limits<int32_t>::max();
  // Several tenants ask: max_prompt_rows holds in every step.
  bool several_tenants = false;
};

struct PlannedRows {
  int32_t sequence = 0;   // index into the views
  int32_t num_rows = 0;   // from num_computed on
  int32_t new_pages = 0;  // to be allocated before the step
  int32_t num_draft = 0;  // of the rows, the last ones: draft tokens
};

// To be carried out in this order. Indices are those of the views.
struct Plan {
  std::vector<int32_t> preempted;
  std::vector<int32_t> admitted;
  std::vector<PlannedRows> rows;  // decodes before prompts
};

// How many of `all` a tenant that is not alone may take; one at least.
int32_t MostOfTenant(int32_t all);

// `sequences` in order of priority, start tag, arrival. `available_pages` are
// free or cached without a holder. Not empty for a non-empty input, if every
// sequence alone fits into the pool, none is held and not all are fetching.
Plan MakePlan(std::span<const SequenceView> sequences, int32_t available_pages,
              const PolicyLimits& limits);

}  // namespace millrace::scheduler
