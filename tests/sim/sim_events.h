// What happened in the simulated worlds, counted; and the pages of their cells
// as a store outside the pool copies them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/llm/page_access.h"
#include "tests/sim/kv_cells.h"

namespace millrace::scheduler {

// What the worlds did together, to be sure that they did it.
struct Events {
  int64_t preemptions = 0;
  int64_t forks = 0;
  int64_t given_back = 0;  // pages before a window, again each step
  // Of worlds with several page groups.
  int64_t group_forks = 0;
  int64_t group_found_tokens = 0;
  int64_t found_before_window = 0;  // places of pages that are not needed
  int64_t lacking_prompts = 0;      // that have no page for their next row
  int64_t found_tokens = 0;
  int64_t evicting_steps = 0;  // with nothing free and something cached
  int64_t waits = 0;
  int64_t held = 0;  // for a prompt of another tenant
  int64_t accepted_drafts = 0;
  int64_t proposed_drafts = 0;   // proposed by the draft model
  int64_t sure_drafts = 0;       // of those, where it cannot be wrong
  int64_t drafts_held_back = 0;  // for want of its pages, rows or context
  int64_t saved_pages = 0;
  int64_t restored_pages = 0;
  int64_t all_fetch = 0;  // empty steps: every sequence waited for stored pages
};

// Pages of the cells go to a store and come back.
class CellAccess final : public models::PageAccess {
 public:
  CellAccess(KvCells& cells, Events& events) : cells_(cells), events_(events) {}
  int64_t page_bytes() const override { return KvCells::page_bytes(); }
  void ReadPage(models::PageId page,
                std::span<std::byte> bytes) const override {
    ++events_.saved_pages;
    std::ranges::copy(cells_.Page(page), bytes.begin());
  }
  void WritePage(models::PageId page,
                 std::span<const std::byte> bytes) override {
    ++events_.restored_pages;
    std::ranges::copy(bytes, cells_.Page(page).begin());
  }

 private:
  KvCells& cells_;
  Events& events_;
};

}  // namespace millrace::scheduler
