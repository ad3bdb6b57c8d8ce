#include "server/lifecycle/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace::server {
namespace {

using ::testing::ElementsAre;

config::Topology Machine(const std::string& synthetic) {
  config::Topology::Sources sources;
  sources.hwloc_synthetic = synthetic;
  auto found = config::Topology::Detect(sources);
  EXPECT_TRUE(found.ok()) << found.status().ToString();
  return found.ok() ? *std::move(found) : config::Topology();
}

TEST(Placement, InstancesStayOnTheirNodeAndTellIt) {
  const config::Topology machine = Machine("numa:2 core:4 pu:1");
  const auto places = PlacesOf({0, 1, 2, 3, 4, 5, 6, 7}, 4, machine);
  ASSERT_EQ(places.size(), 4u);
  EXPECT_THAT(places[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(places[0].numa_nodes, ElementsAre(0));
  EXPECT_THAT(places[3].cpus, ElementsAre(6, 7));
  EXPECT_THAT(places[3].numa_nodes, ElementsAre(1));
}

TEST(Placement, OneInstanceOverTwoNodesTellsBoth) {
  const config::Topology machine = Machine("numa:2 core:2 pu:2");
  const auto places = PlacesOf({0, 2, 4, 6}, 1, machine);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_THAT(places[0].cpus, ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(places[0].numa_nodes, ElementsAre(0, 1));
}

TEST(Placement, ATeamThatIsNotPinnedIsOnNoNode) {
  const auto places = PlacesOf({}, 2, Machine("numa:2 core:2 pu:1"));
  ASSERT_EQ(places.size(), 2u);
  EXPECT_TRUE(places[1].cpus.empty());
  EXPECT_TRUE(places[1].numa_nodes.empty());
}

}  // namespace
}  // namespace millrace::server
