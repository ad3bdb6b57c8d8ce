#include "scheduler/page_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace millrace::scheduler {
namespace {

using models::kPageTokens;
using models::PageId;

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
