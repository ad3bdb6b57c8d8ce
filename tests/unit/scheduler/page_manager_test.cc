#include "scheduler/page_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace millrace::scheduler {
namespace {

using models::kNoPage;
using models::kPageTokens;
using models::PageId;

TEST(PageManager, KnowsWhichPagesNobodyEverHad) {
  PageManager manager(4);
  std::vector<PageId> pages;
  EXPECT_EQ(manager.first_unused(), 0);
  ASSERT_TRUE(manager.Allocate(3, pages));
  EXPECT_EQ(manager.first_unused(), 3);
  manager.Release(pages);
  ASSERT_TRUE(manager.Allocate(1, pages));
  EXPECT_EQ(manager.first_unused(), 3);
}

TEST(PageManager, AllocatesAllOrNothing) {
  PageManager manager(3);
  std::vector<PageId> pages;
  EXPECT_FALSE(manager.Allocate(4, pages));
  EXPECT_TRUE(pages.empty());
  EXPECT_EQ(manager.free(), 3);
  EXPECT_TRUE(manager.Allocate(2, pages));
  EXPECT_EQ(manager.used(), 2);
  EXPECT_TRUE(manager.Allocate(1, pages));
  EXPECT_FALSE(manager.Allocate(1, pages));
  EXPECT_EQ(pages.size(), 3u);
  manager.Release(pages);
  EXPECT_TRUE(pages.empty());
  EXPECT_EQ(manager.free(), 3);
  EXPECT_TRUE(manager.Audit().ok());
}

TEST(PageManager, ForkSharesFullPagesAndCopiesThePartialOne) {
  PageManager manager(4);
  std::vector<PageId> pages;
  ASSERT_TRUE(manager.Allocate(2, pages));
  auto fork = manager.Fork(pages, kPageTokens + 6);
  ASSERT_TRUE(fork.has_value());
  ASSERT_EQ(fork->pages.size(), 2u);
  EXPECT_EQ(fork->pages[0], pages[0]);
  EXPECT_NE(fork->pages[1], pages[1]);
  ASSERT_TRUE(fork->copy.has_value());
  EXPECT_EQ(fork->copy->src, pages[1]);
  EXPECT_EQ(fork->copy->dst, fork->pages[1]);
  EXPECT_EQ(manager.used(), 3);
  EXPECT_EQ(manager.refs(pages[0]), 2);

  const PageId shared = pages[0];
  manager.Release(pages);
  EXPECT_EQ(manager.refs(shared), 1);
  EXPECT_EQ(manager.used(), 2);
  manager.Release(fork->pages);
  EXPECT_EQ(manager.used(), 0);
  EXPECT_TRUE(manager.Audit().ok());
}

TEST(PageManager, ForkAtAPageBoundaryCopiesNothing) {
  PageManager manager(2);
  std::vector<PageId> pages;
  ASSERT_TRUE(manager.Allocate(2, pages));
  auto fork = manager.Fork(pages, kPageTokens);
  ASSERT_TRUE(fork.has_value());
  EXPECT_FALSE(fork->copy.has_value());
  EXPECT_EQ(fork->pages, std::vector{pages[0]});
}

TEST(PageManager, FailedForkTakesNothing) {
  PageManager manager(2);
  std::vector<PageId> pages;
  ASSERT_TRUE(manager.Allocate(2, pages));
  EXPECT_FALSE(manager.Fork(pages, kPageTokens + 1).has_value());
  EXPECT_EQ(manager.refs(pages[0]), 1);
  EXPECT_TRUE(manager.Audit(std::vector{&std::as_const(pages)}).ok());
}

TEST(PageManager, AuditNamesAPageWithTooFewOwners) {
  PageManager manager(3);
  std::vector<PageId> pages;
  ASSERT_TRUE(manager.Allocate(2, pages));
  const std::vector<PageId> forgotten = {pages[0]};
  const Status audit = manager.Audit(std::vector{&forgotten});
  EXPECT_EQ(audit.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(audit.message()),
              testing::HasSubstr("page 1 has 1 references but 0 owners"));
}

// Pages of a sequence with these tokens, all full ones registered.
std::vector<PageId> Cache(PageManager& manager,
                          const std::vector<int32_t>& tokens) {
  std::vector<PageId> pages;
  CHECK(manager.Allocate(PagesFor(static_cast<int32_t>(tokens.size())), pages),
        "the test has pages enough");
  std::vector<uint64_t> hashes;
  manager.HashPages(tokens, hashes);
  for (size_t i = 0; i < hashes.size(); ++i) {
    manager.Register(pages, static_cast<int32_t>(i),
                     std::span(tokens).subspan(i * kPageTokens, kPageTokens),
                     hashes[i]);
  }
  return pages;
}

PageManager::Found Find(const PageManager& manager,
                        const std::vector<int32_t>& tokens,
                        int32_t max_pages = 100) {
  std::vector<uint64_t> hashes;
  manager.HashPages(tokens, hashes);
  return manager.Find(tokens, hashes, max_pages);
}

std::vector<int32_t> Tokens(int32_t pages, int32_t last_page) {
  std::vector<int32_t> tokens(static_cast<size_t>(pages) * kPageTokens, 7);
  tokens.back() = last_page;
  return tokens;
}

TEST(PageManager, FullPagesOfAnEndedSequenceAreFoundAgain) {
  PageManager manager(4);
  auto tokens = Tokens(3, 1);
  tokens.push_back(9);  // a fourth, partial page
  auto pages = Cache(manager, tokens);
  const std::vector<PageId> full(pages.begin(), pages.begin() + 3);
  manager.Release(pages);
  EXPECT_EQ(manager.cached(), 3);
  EXPECT_EQ(manager.free(), 1);

  EXPECT_EQ(Find(manager, tokens).pages, full);
  EXPECT_EQ(Find(manager, tokens).num_cached, 3);
  EXPECT_EQ(Find(manager, tokens, 2).pages.size(), 2u);
  EXPECT_EQ(Find(manager, Tokens(3, 2)).pages.size(), 2u);
  EXPECT_EQ(Find(manager, Tokens(1, 2)).pages.size(), 0u);

  auto found = Find(manager, Tokens(3, 2));
  manager.Share(found.pages);
  EXPECT_EQ(manager.used(), 2);
  EXPECT_EQ(manager.cached(), 1);
  EXPECT_EQ(Find(manager, tokens).num_cached, 1);
  EXPECT_TRUE(manager.Audit(std::vector{&std::as_const(found.pages)}).ok());
}

// Of page groups: found by the page of the first group with the same tokens.
TEST(PageManager, AnAttachedPageIsFoundAndGoesWithItsPage) {
  PageManager manager(6);
  auto chain = Cache(manager, Tokens(2, 1));
  std::vector<PageId> sliding;
  ASSERT_TRUE(manager.Allocate(2, sliding));
  const PageId second = sliding[1];
  manager.Attach(chain[0], 1, sliding, 0);
  manager.Attach(chain[1], 1, sliding, 1);
  manager.GiveBack(sliding, 0);
  EXPECT_EQ(manager.cached(), 1);
  EXPECT_NE(manager.Attached(chain[0], 1), kNoPage) << "as long as it is there";
  EXPECT_EQ(manager.Attached(chain[1], 1), second);
  EXPECT_EQ(manager.Attached(chain[1], 2), kNoPage) << "another group's";
  EXPECT_TRUE(
      manager.Audit(std::vector{&std::as_const(chain), &std::as_const(sliding)})
          .ok());

  // Another sequence that computed the same is given what is there.
  std::vector<PageId> same = {kNoPage};
  ASSERT_TRUE(manager.Allocate(1, same));
  manager.Attach(chain[1], 1, same, 1);
  EXPECT_EQ(same[1], second);
  EXPECT_EQ(manager.refs(second), 2);
  manager.Release(same);

  manager.Release(sliding);
  manager.Release(chain);
  EXPECT_EQ(manager.cached(), 4);
  EXPECT_EQ(manager.free(), 2);
  // The oldest goes first: the page given back, then the attached one, then the
  // tail of the chain.
  std::vector<PageId> taken;
  ASSERT_TRUE(manager.Allocate(3, taken));
  EXPECT_EQ(manager.cached(), 3);
  auto found = Find(manager, Tokens(2, 1)).pages;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(manager.Attached(found[0], 1), kNoPage);
  EXPECT_EQ(manager.Attached(found[1], 1), second);
  // What it is attached to goes: so does it.
  manager.Share(std::vector{kNoPage, second});
  auto used = std::vector{kNoPage, second};
  manager.Share(found);
  manager.Release(found);
  manager.Release(used);
  ASSERT_TRUE(manager.Allocate(1, taken));
  EXPECT_EQ(Find(manager, Tokens(2, 1)).pages.size(), 1u);
  EXPECT_EQ(manager.cached(), 1);
  EXPECT_TRUE(manager.Audit().ok()) << manager.Audit().ToString();
}

TEST(PageManager, LeastRecentlyUsedIsEvictedFirstAndTailsBeforeHeads) {
  PageManager manager(4);
  auto old = Cache(manager, Tokens(2, 1));
  auto young = Cache(manager, std::vector<int32_t>(2 * kPageTokens, 3));
  manager.Release(old);
  manager.Release(young);
  std::vector<PageId> taken;
  ASSERT_TRUE(manager.Allocate(1, taken));
  EXPECT_EQ(Find(manager, Tokens(2, 1)).pages.size(), 1u) << "its tail went";
  // Used again: now the other chain is the oldest.
  auto found = Find(manager, Tokens(2, 1));
  manager.Share(found.pages);
  manager.Release(found.pages);
  ASSERT_TRUE(manager.Allocate(2, taken));
  EXPECT_EQ(Find(manager, Tokens(2, 1)).pages.size(), 1u);
  EXPECT_EQ(
      Find(manager, std::vector<int32_t>(2 * kPageTokens, 3)).pages.size(), 0u);
  EXPECT_FALSE(manager.Allocate(2, taken)) << "one is left";
  EXPECT_EQ(manager.cached(), 1) << "a refusal evicts nothing";
  EXPECT_TRUE(manager.Audit(std::vector{&std::as_const(taken)}).ok());
}

TEST(PageManager, WhoComputesContentsTwiceIsGivenTheFirst) {
  PageManager manager(4);
  const auto first = Cache(manager, Tokens(2, 1));
  const auto second = Cache(manager, Tokens(2, 1));
  EXPECT_EQ(first, second);
  EXPECT_EQ(manager.refs(first[0]), 2);
  EXPECT_EQ(manager.used(), 2);
  EXPECT_EQ(manager.free(), 2);
}

TEST(PageManager, ACollisionNeverGivesForeignContents) {
  PageManager manager(6, /*hash_mask=*/0);
  auto a = Cache(manager, Tokens(2, 1));
  auto b = Cache(manager, Tokens(2, 2));
  EXPECT_EQ(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
  EXPECT_EQ(Find(manager, Tokens(2, 1)).pages, a);
  EXPECT_EQ(Find(manager, Tokens(2, 2)).pages, b);
  // The same ids after another page are other contents.
  auto tokens = Tokens(1, 5);
  const auto tail = Tokens(2, 1);
  tokens.insert(tokens.end(), tail.begin() + kPageTokens, tail.end());
  EXPECT_THAT(Find(manager, tokens).pages, testing::IsEmpty());
}

TEST(PageManager, ForgottenPagesAreFreeAndNotFound) {
  PageManager manager(5);
  auto kept = Cache(manager, Tokens(2, 1));
  auto gone = Cache(manager, std::vector<int32_t>(2 * kPageTokens, 3));
  manager.Release(gone);
  manager.Forget();
  EXPECT_EQ(manager.free(), 3);
  EXPECT_EQ(manager.cached(), 0);
  EXPECT_THAT(Find(manager, Tokens(2, 1)).pages, testing::IsEmpty());
  manager.Release(kept);
  EXPECT_EQ(manager.free(), 5);
  EXPECT_TRUE(manager.Audit().ok());
}

TEST(PageManager, AnEvictedHeadTakesAllThatFollowsIt) {
  PageManager manager(6, ~uint64_t{0}, /*heads_may_go=*/true);
  auto a = Cache(manager, Tokens(3, 1));
  auto b = Cache(manager, Tokens(3, 2));  // shares two pages
  std::vector<PageId> other;
  ASSERT_TRUE(manager.Allocate(2, other));
  manager.GiveBack(a, 0);
  manager.GiveBack(b, 0);
  manager.Release(b);
  ASSERT_TRUE(
      manager.Audit(std::vector{&std::as_const(a), &std::as_const(other)})
          .ok());
  // The head is the oldest: its page goes, and with it the one of b, which
  // nobody can find any more.
  ASSERT_TRUE(manager.Allocate(1, other));
  EXPECT_EQ(manager.cached(), 0);
  EXPECT_EQ(manager.free(), 1);
  EXPECT_FALSE(manager.registered(a[1]));
  EXPECT_FALSE(manager.registered(a[2]));
  EXPECT_TRUE(
      manager.Audit(std::vector{&std::as_const(a), &std::as_const(other)})
          .ok());
}

// In time that grows with what follows, not with all pages for each: by the
// square this would take minutes.
TEST(PageManager, AnEvictedHeadOfALongChainTakesNoLongTime) {
  constexpr int32_t kPages = 100'000;
  PageManager manager(kPages, ~uint64_t{0}, /*heads_may_go=*/true);
  auto pages = Cache(manager, Tokens(kPages, 1));
  manager.GiveBack(pages, 0);
  manager.Release(pages);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<PageId> taken;
  ASSERT_TRUE(manager.Allocate(1, taken));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(manager.free(), kPages - 1);
}

TEST(PageManager, BooksBalanceAfterEachOfManyRandomSteps) {
  std::mt19937 random(7);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  PageManager manager(20);
  std::vector<std::vector<PageId>> owners;
  for (int step = 0; step < 5'000; ++step) {
    const int action = uniform(0, 2);
    if (action == 0) {
      std::vector<PageId> pages;
      const int n = uniform(1, 5);
      const int free = manager.free();
      EXPECT_EQ(manager.Allocate(n, pages), n <= free);
      if (!pages.empty()) owners.push_back(pages);
    } else if (action == 1 && !owners.empty()) {
      const auto& source =
          owners[uniform(0, static_cast<int>(owners.size()) - 1)];
      auto fork = manager.Fork(
          source, uniform(1, static_cast<int>(source.size()) * kPageTokens));
      if (fork) owners.push_back(std::move(fork->pages));
    } else if (!owners.empty()) {
      std::swap(owners[uniform(0, static_cast<int>(owners.size()) - 1)],
                owners.back());
      manager.Release(owners.back());
      owners.pop_back();
    }
    std::vector<const std::vector<PageId>*> lists;
    for (const auto& pages : owners) lists.push_back(&pages);
    const Status audit = manager.Audit(lists);
    ASSERT_TRUE(audit.ok()) << "step " << step << ": " << audit.ToString();
  }
}

}  // namespace
}  // namespace millrace::scheduler
