#include "scheduler/draft_ledger.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace millrace::scheduler {
namespace {

Sequence Running(int32_t slot, int32_t num_tokens) {
  Sequence sequence;
  sequence.slot = slot;
  sequence.tokens.resize(num_tokens);
  std::iota(sequence.tokens.begin(), sequence.tokens.end(), 0);
  return sequence;
}

DraftLedger Make(int32_t num_pages, bool prefix_caching = true) {
  return DraftLedger({.num_pages = num_pages,
                      .num_slots = 4,
                      .max_context = 300,
                      .prefix_caching = prefix_caching});
}

void CatchUp(DraftLedger& ledger, const Sequence& sequence) {
  ledger.Sync(sequence);
  ASSERT_TRUE(ledger.Grow(sequence, sequence.num_tokens()));
  ledger.Hold(sequence, ledger.Lacking(sequence));
}

TEST(DraftLedger, AcceptedDraftsAreHeldAndRejectedOnesForgotten) {
  DraftLedger ledger = Make(4);
  Sequence sequence = Running(1, 10);
  CatchUp(ledger, sequence);
  EXPECT_EQ(ledger.Held(sequence), 9) << "the last one must draw again";
  for (const int32_t id : {70, 71, 72}) ledger.Try(sequence, id);
  // 70 and 71 were accepted, then something else was drawn.
  sequence.tokens.insert(sequence.tokens.end(), {70, 71, 5});
  ledger.Sync(sequence);
  EXPECT_EQ(ledger.Held(sequence), 12);
  EXPECT_EQ(ledger.Lacking(sequence), 1);
  EXPECT_TRUE(ledger.Audit().ok());
}

TEST(DraftLedger, ASequenceThatStoodStillDrawsFromItsLastTokenAgain) {
  DraftLedger ledger = Make(4);
  Sequence sequence = Running(0, 64);
  ledger.pages().HashPages(sequence.tokens, sequence.page_hashes);
  CatchUp(ledger, sequence);
  ledger.Try(sequence, 3);
  ledger.Sync(sequence);
  EXPECT_EQ(ledger.Held(sequence), 63);
  // The row of token 63 is written again, so its page is nobody else's yet.
  Sequence other = Running(1, 70);
  other.page_hashes = sequence.page_hashes;
  ledger.Sync(other);
  EXPECT_EQ(ledger.Held(other), 0);
}

TEST(DraftLedger, FullPagesAreFoundByThoseThatBeginAlike) {
  DraftLedger ledger = Make(6);
  Sequence first = Running(0, 130);
  ledger.pages().HashPages(first.tokens, first.page_hashes);
  CatchUp(ledger, first);
  Sequence second = Running(1, 129);
  second.page_hashes = first.page_hashes;
  ledger.Sync(second);
  EXPECT_EQ(ledger.Held(second), 128);
  EXPECT_EQ(ledger.PagesOf(second)[1], ledger.PagesOf(first)[1]);
  ledger.Release(first);
  ledger.Release(second);
  EXPECT_EQ(ledger.pages().used(), 0);
  EXPECT_EQ(ledger.pages().cached(), 2);
  EXPECT_TRUE(ledger.Audit().ok());
  ledger.Forget();
  EXPECT_EQ(ledger.pages().free(), 6);
}

TEST(DraftLedger, NoPageIsTakenFromAnybody) {
  DraftLedger ledger = Make(2, false);
  const Sequence first = Running(0, 64);
  const Sequence second = Running(1, 100);
  CatchUp(ledger, first);
  ledger.Sync(second);
  EXPECT_FALSE(ledger.Grow(second, 100));
  EXPECT_TRUE(ledger.PagesOf(second).empty()) << "nothing by halves";
  EXPECT_TRUE(ledger.Grow(second, 60));
}

TEST(DraftLedger, GrowsNoFurtherThanTheDraftModelReaches) {
  DraftLedger ledger = Make(10);
  const Sequence sequence = Running(0, 290);
  ledger.Sync(sequence);
  EXPECT_TRUE(ledger.Grow(sequence, 300));
  EXPECT_FALSE(ledger.Grow(sequence, 301));
}

}  // namespace
}  // namespace millrace::scheduler
