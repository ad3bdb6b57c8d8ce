// Pages of sequences whose model sees a window of keys only, of adapters and of
// images; everything else about the ledger is the simulator's (tests/sim).
#include "scheduler/kv_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/llm/prompt_embeddings.h"
#include "tests/unit/scheduler/fake_store.h"

namespace millrace::scheduler {
namespace {

using models::kNoPage;
using models::kPageTokens;

constexpr int32_t kWindow = 1024;
constexpr PolicyLimits kLimits = {
    .max_tokens = 512, .max_seqs = 4, .max_samples = 4};

// One step in which the sequence runs alone, or with those before it.
void Step(KvLedger& ledger, std::vector<Sequence*> sequences,
          int32_t num_groups = 1) {
  models::StepBatch batch({.max_tokens = 512,
                           .max_seqs = 4,
                           .max_pages_per_seq = 256,
                           .max_samples = 4,
                           .page_groups = num_groups});
  const auto views = ledger.Views(sequences, kLimits);
  const Plan plan = MakePlan(views, ledger.pages().available(), kLimits);
  StepBuilder builder(batch);
  ledger.Admit(plan, sequences, builder);
  for (const int32_t i : plan.admitted) sequences[i]->slot = i;
  for (const PlannedRows& rows : plan.rows) {
    ledger.Grow(*sequences[rows.sequence], rows.num_rows);
  }
  for (const PlannedRows& rows : plan.rows) {
    Sequence& sequence = *sequences[rows.sequence];
    const int32_t computed = sequence.num_computed + rows.num_rows;
    if (computed == sequence.num_tokens()) sequence.tokens.push_back(computed);
    ledger.Advance(sequence, computed);
  }
}

Sequence Prompt(int32_t num_tokens) {
  Sequence sequence;
  sequence.tokens.resize(static_cast<size_t>(num_tokens));
  std::iota(sequence.tokens.begin(), sequence.tokens.end(), 0);
  sequence.num_prompt = num_tokens;
  sequence.max_output = 1000;
  return sequence;
}

TEST(KvLedger, AWindowBoundsThePagesOfALongSequence) {
  KvLedger ledger({.num_pages = 200, .windows = {kWindow}});
  Sequence sequence = Prompt(8192);
  while (sequence.num_output() == 0) Step(ledger, {&sequence});
  for (int i = 0; i < 300; ++i) {
    Step(ledger, {&sequence});
    // The window's own pages, one that it begins in and one that grows.
    ASSERT_LE(ledger.pages().used(), kWindow / kPageTokens + 2);
  }
  EXPECT_EQ(sequence.tables[0].pages.front(), kNoPage);
  EXPECT_EQ(sequence.num_computed, 8192 + 300);
  ledger.GiveBack(sequence);
  EXPECT_EQ(ledger.pages().used(), 0);
}

// While the prompt is computed, too: the window, a step, and where they begin.
TEST(KvLedger, AWindowBoundsThePagesOfALongPrompt) {
  KvLedger ledger({.num_pages = 200, .windows = {kWindow}, .max_rows = 512});
  Sequence sequence = Prompt(8192);
  int32_t most = 0;
  while (sequence.num_output() == 0) {
    Step(ledger, {&sequence});
    most = std::max(most, ledger.pages().used());
  }
  EXPECT_EQ(most, (kWindow + 512) / kPageTokens + 1);
}

// 32 layers that see all and as many with a window: of 8192 tokens the ones
// keep all pages, the others those of the window.
TEST(KvLedger, GroupsKeepWhatTheirLayersSee) {
  KvLedger ledger({.num_pages = 200, .windows = {0, kWindow}, .max_rows = 512});
  Sequence sequence = Prompt(8192);
  while (sequence.num_output() == 0) {
    Step(ledger, {&sequence}, 2);
    ASSERT_LE(ledger.pages().used(), (8192 + kWindow + 512) / kPageTokens + 1);
  }
  for (int i = 0; i < 300; ++i) {
    Step(ledger, {&sequence}, 2);
    const int32_t all = PagesFor(sequence.num_computed);
    ASSERT_LE(ledger.pages().used(), all + kWindow / kPageTokens + 2);
  }
  EXPECT_EQ(sequence.tables[0].num_given_back, 0);
  EXPECT_EQ(sequence.tables[1].pages.front(), kNoPage);
  EXPECT_EQ(sequence.tables[1].size(), sequence.tables[0].size());
  ledger.GiveBack(sequence);
  EXPECT_EQ(ledger.pages().used(), 0);
}

// Behind the shared opening of 2048 tokens the prompts differ. The window
// before is all that the second group needs of it.
TEST(KvLedger, AnOpeningIsFoundWhereAllGroupsHaveItsEnd) {
  for (const bool lost : {false, true}) {
    SCOPED_TRACE(lost);
    KvLedger ledger(
        {.num_pages = 110, .windows = {0, kWindow}, .max_rows = 512});
    Sequence first = Prompt(3000);
    std::fill(first.tokens.begin() + 2048, first.tokens.end(), 7);
    while (first.num_output() == 0) Step(ledger, {&first}, 2);
    ledger.GiveBack(first);
    // 46 full pages and, of the other group, as many.
    ASSERT_EQ(ledger.pages().cached(), 92);
    if (lost) {
      // 18 are free and 62 are taken of the oldest: most of what the window
      // left behind, and the ends of both tables.
      Sequence other = Prompt(40 * kPageTokens);
      for (int32_t& token : other.tokens) token += 10'000;
      while (other.num_output() == 0) Step(ledger, {&other}, 2);
      ledger.GiveBack(other);
    }
    Sequence second = Prompt(3000);
    Step(ledger, {&second}, 2);
    EXPECT_EQ(second.num_found, lost ? 0 : 2048);
    if (lost) continue;
    // The first step has given back its own, too.
    EXPECT_EQ(second.tables[1].num_given_back,
              (2048 + 512 - kWindow) / kPageTokens);
    while (second.num_output() == 0) Step(ledger, {&second}, 2);
    ledger.GiveBack(second);
    EXPECT_EQ(ledger.pages().used(), 0);
    EXPECT_TRUE(ledger.pages().Audit().ok());
  }
}

// A window's pages that a running sequence shares are there for both.
TEST(KvLedger, PromptsThatBeginAlikeShareTheWindowOfAllGroups) {
  KvLedger ledger({.num_pages = 300, .windows = {0, kWindow}, .max_rows = 512});
  Sequence first = Prompt(4096);
  while (first.num_output() == 0) Step(ledger, {&first}, 2);
  const int32_t used = ledger.pages().used();
  Sequence second = Prompt(4096);
  second.arrival = 1;
  Step(ledger, {&first, &second}, 2);
  EXPECT_EQ(second.num_found, 4096 - kPageTokens);
  // Its last page is its own, in both groups; one of the window's had been
  // given back.
  EXPECT_LE(ledger.pages().used(), used + 2 + 1 + 2);
}

TEST(KvLedger, WithoutAWindowPagesStay) {
  KvLedger ledger({.num_pages = 200});
  Sequence sequence = Prompt(2048);
  while (sequence.num_output() == 0) Step(ledger, {&sequence});
  EXPECT_EQ(ledger.pages().used(), 2048 / kPageTokens);
  EXPECT_EQ(sequence.tables[0].num_given_back, 0);
}

// What was given back stays in the prefix cache as long as nobody needs it.
TEST(KvLedger, APromptFindsPagesThatAWindowGaveBack) {
  KvLedger ledger({.num_pages = 200, .windows = {kWindow}});
  Sequence first = Prompt(4096);
  while (first.num_output() == 0) Step(ledger, {&first});
  ASSERT_GT(first.tables[0].num_given_back, 0);
  Sequence second = Prompt(4096);
  second.arrival = 1;
  Step(ledger, {&first, &second});
  EXPECT_EQ(second.num_found, 4096 - kPageTokens);
  EXPECT_GT(second.tables[0].num_given_back, 0);
}

// Equal tokens under another adapter have other keys, whatever the hashes say.
TEST(KvLedger, APromptFindsPagesOfItsOwnAdapterOnly) {
  for (const bool separate_roles : {false, true}) {
    for (const uint64_t mask : {~uint64_t{0}, uint64_t{0}}) {
      KvLedger ledger({.num_pages = 200,
                       .separate_roles = separate_roles,
                       .hash_mask = mask});
      const auto found = [&](uint32_t adapter) {
        Sequence sequence = Prompt(256);
        sequence.adapter = adapter;
        while (sequence.num_output() == 0) Step(ledger, {&sequence});
        ledger.GiveBack(sequence);
        return sequence.num_found;
      };
      for (const uint32_t adapter : {0u, 1u, 2u, 3u, ~0u}) {
        EXPECT_EQ(found(adapter), 0) << adapter;
      }
      for (const uint32_t adapter : {0u, 1u, 2u, 3u, ~0u}) {
        EXPECT_EQ(found(adapter), 256 - kPageTokens) << adapter;
      }
    }
  }
}

// So have equal tokens in whose place rows of images stand.
TEST(KvLedger, APromptFindsPagesOfItsOwnImagesOnly) {
  for (const bool separate_roles : {false, true}) {
    for (const uint64_t mask : {~uint64_t{0}, uint64_t{0}}) {
      KvLedger ledger({.num_pages = 200,
                       .separate_roles = separate_roles,
                       .hash_mask = mask});
      models::PromptEmbeddings rows;
      // The last row of the second page is the image's first.
      rows.spans = {{.first = 127, .count = 50}};
      const auto found = [&](int32_t image) {
        Sequence sequence = Prompt(256);
        rows.spans[0].image = image;
        if (image >= 0) sequence.embeddings = &rows;
        while (sequence.num_output() == 0) Step(ledger, {&sequence});
        ledger.GiveBack(sequence);
        return sequence.num_found;
      };
      EXPECT_EQ(found(-1), 0);
      // What stands before the image is the same for all.
      for (const int32_t image : {0, 1, models::kMostImageNumber}) {
        EXPECT_EQ(found(image), kPageTokens) << image;
      }
      for (const int32_t image : {-1, 0, 1, models::kMostImageNumber}) {
        EXPECT_EQ(found(image), 256 - kPageTokens) << image;
      }
    }
  }
}

// Numbers of images end with the process; the store's pages do not.
TEST(KvLedger, PagesWithImagesAreNotKeptOutsideThePool) {
  const FakeStore store(std::make_shared<FakeShelf>(), 64);
  KvLedger ledger({.num_pages = 200, .store = &store});
  models::PromptEmbeddings rows;
  rows.spans = {{.first = 100, .count = 50}};
  for (const auto* embeddings :
       {static_cast<const models::PromptEmbeddings*>(&rows),
        static_cast<const models::PromptEmbeddings*>(nullptr)}) {
    Sequence sequence = Prompt(256);
    sequence.embeddings = embeddings;
    while (sequence.num_output() == 0) Step(ledger, {&sequence});
    ledger.GiveBack(sequence);
    EXPECT_EQ(ledger.TakeNewPages().empty(), embeddings != nullptr);
  }
}

// A sibling needs the keys of the window before its start.
TEST(KvLedger, ASiblingIsForkedOnlyWhileItsWindowIsThere) {
  const char fork_group = 0;
  for (const int32_t ahead : {1, 200}) {
    KvLedger ledger(
        {.num_pages = 200, .prefix_caching = false, .windows = {kWindow}});
    Sequence first = Prompt(2048);
    first.fork_group = &fork_group;
    while (first.num_output() < ahead) Step(ledger, {&first});
    Sequence second = Prompt(2048);
    second.fork_group = &fork_group;
    second.arrival = 1;
    Step(ledger, {&first, &second});
    EXPECT_EQ(second.num_found, ahead == 1 ? 2047 : 0) << ahead;
  }
}

}  // namespace
}  // namespace millrace::scheduler
