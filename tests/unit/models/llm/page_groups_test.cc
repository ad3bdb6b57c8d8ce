#include "models/llm/page_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace millrace::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PageGroups, LayersOfOneKindAreOneGroup) {
  for (const int32_t window : {0, 512}) {
    const std::vector<int32_t> windows(24, window);
    const PageGroups groups = GroupPages(windows, 8192);
    EXPECT_THAT(groups.windows, ElementsAre(window));
    EXPECT_EQ(groups.layers_per_page, 24);
    EXPECT_THAT(groups.places, IsEmpty());
  }
  // Some slide further than others: the widest window counts.
  EXPECT_THAT(GroupPages(std::vector<int32_t>{512, 1024}, 8192).windows,
              ElementsAre(1024));
}

TEST(PageGroups, HalfOfTheLayersAreAGroupOfTheirOwn) {
  // gpt-oss
  std::vector<int32_t> windows;
  for (int i = 0; i < 12; ++i) windows.insert(windows.end(), {128, 0});
  const PageGroups groups = GroupPages(windows, 8192);
  EXPECT_THAT(groups.windows, ElementsAre(0, 128));
  EXPECT_EQ(groups.layers_per_page, 12);
  EXPECT_EQ(groups.places[0].group, 1);
  EXPECT_EQ(groups.places[0].layer, 0);
  EXPECT_EQ(groups.places[1].group, 0);
  EXPECT_EQ(groups.places[1].layer, 0);
  EXPECT_EQ(groups.places[23].group, 0);
  EXPECT_EQ(groups.places[23].layer, 11);
}

TEST(PageGroups, FiveOfSixLayersAreSeveralGroups) {
  // Gemma 3 of 12B, 48 layers, and 1B, 26 layers of which 4 see all.
  std::vector<int32_t> windows;
  for (int i = 0; i < 48; ++i) windows.push_back(i % 6 == 5 ? 0 : 1024);
  const PageGroups large = GroupPages(windows, 32768);
  EXPECT_THAT(large.windows, ElementsAre(0, 1024, 1024, 1024, 1024, 1024));
  EXPECT_EQ(large.layers_per_page, 8);
  // Each layer has a place of its own.
  std::vector<std::vector<int>> taken(6, std::vector<int>(8, 0));
  for (const KvPlace& place : large.places) ++taken[place.group][place.layer];
  for (const auto& group : taken)
    EXPECT_THAT(group, ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));

  windows.resize(26);
  const PageGroups small = GroupPages(windows, 32768);
  EXPECT_EQ(small.count(), 7);
  EXPECT_EQ(small.layers_per_page, 4);
}

TEST(PageGroups, FewTablesAndOnlyWhatPays) {
  // One of 31 layers sees all: places without a layer stand beside it, but
  // there are no 31 tables.
  std::vector<int32_t> windows(31, 256);
  windows[7] = 0;
  const PageGroups groups = GroupPages(windows, 16384);
  EXPECT_LE(groups.count(), kMostPageGroups);
  EXPECT_EQ(groups.windows[0], 0);
  // A window as wide as the context saves nothing, one nearly as wide little.
  for (const int32_t window : {8192, 8000}) {
    EXPECT_THAT(GroupPages(std::vector<int32_t>{window, 0}, 8192).windows,
                ElementsAre(0));
  }
}

TEST(PageGroups, MostPagesAreThoseOfTheWindowAndAStep) {
  EXPECT_EQ(MostPages(0, 512, 8192), 128);
  EXPECT_EQ(MostPages(0, 512, 8193), 129);
  // 1024 keys begin anywhere in a page.
  EXPECT_EQ(MostPages(1024, 1, 8192), 17);
  EXPECT_EQ(MostPages(1025, 1, 8192), 17);
  EXPECT_EQ(MostPages(1026, 1, 8192), 18);
  EXPECT_EQ(MostPages(1024, 513, 8192), 25);
  EXPECT_EQ(MostPages(1024, 513, 640), 10) << "no more than there are";
  EXPECT_EQ(MostPages(1, 1, 640), 1);
  const std::vector<int32_t> windows = {0, 128, 128};
  EXPECT_EQ(MostPages(windows, 1, 6400), 100 + 3 + 3);
}

TEST(PageGroups, TheLongestSequenceFillsThePages) {
  EXPECT_EQ(LongestSequence(std::vector<int32_t>{0}, 1, 10, 8192), 640);
  EXPECT_EQ(LongestSequence(std::vector<int32_t>{0}, 1, 10, 600), 600);
  EXPECT_EQ(LongestSequence(std::vector<int32_t>{0}, 1, 0, 600), 0);
  // 3 pages each of the others.
  const std::vector<int32_t> windows = {0, 128, 128};
  EXPECT_EQ(LongestSequence(windows, 1, 16, 8192), 640);
  EXPECT_EQ(LongestSequence(windows, 1, 4, 8192), 64);
  // A window is all that it takes.
  EXPECT_EQ(LongestSequence(std::vector<int32_t>{1024}, 1, 17, 8192), 8192);
  EXPECT_EQ(LongestSequence(std::vector<int32_t>{1024}, 1, 16, 8192), 1024);
}

}  // namespace
}  // namespace millrace::models
