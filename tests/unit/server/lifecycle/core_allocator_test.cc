#include "server/lifecycle/core_allocator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "server/lifecycle/batching.h"

namespace millrace::server {
namespace {

using config::CpuSet;

// hwloc's synthetic machines; no control group limits them.
config::Topology Machine(const std::string& synthetic) {
  const std::string root =
      testing::TempDir() + "/millrace_no_cgroup_" + std::to_string(getpid());
  std::filesystem::create_directories(root);
  auto topology =
      config::Topology::Detect({.hwloc_synthetic = synthetic, .root = root});
  EXPECT_TRUE(topology.ok()) << topology.status().ToString();
  return *topology;
}

CpuSet Take(CoreAllocator& cores, const std::string& owner, int64_t threads) {
  return cores.Take({owner, threads})->cpus();
}

TEST(CoreAllocator, OneOfFourOrMoreCoresIsLeftToSockets) {
  CoreAllocator four(Machine("core:4 pu:1"));
  EXPECT_EQ(Take(four, "a", 0), (CpuSet{0, 1, 2}));
  CoreAllocator two(Machine("core:2 pu:1"));
  EXPECT_EQ(Take(two, "a", 0), (CpuSet{0, 1}));
}

TEST(CoreAllocator, ReserveDividesAmongTheModelsOfTheStart) {
  CoreAllocator cores(Machine("core:8 pu:1"));  // seven compute
  cores.Reserve({{"a", 3}, {"b", 0}, {"c", 0}});
  EXPECT_EQ(Take(cores, "b", 0), (CpuSet{3, 4})) << "a fair share of seven";
  EXPECT_EQ(Take(cores, "a", 3), (CpuSet{0, 1, 2}));
  EXPECT_EQ(Take(cores, "c", 0), (CpuSet{5, 6}));
}

TEST(CoreAllocator, CoresThatAnotherModelNamesAreLeftToIt) {
  CoreAllocator cores(Machine("core:8 pu:1"));  // seven compute
  const CoreRequest named{.owner = "b", .cpus = {0, 1}};
  cores.Reserve({{"a", 2}, named, {"c", 3}});
  EXPECT_EQ(cores.Take(named)->cpus(), (CpuSet{0, 1}));
  EXPECT_EQ(Take(cores, "a", 2), (CpuSet{2, 3}));
  EXPECT_EQ(Take(cores, "c", 3), (CpuSet{4, 5, 6}));
  CoreAllocator nodes(Machine("numa:2 core:4 pu:1"));
  const CoreRequest first{.owner = "b", .numa_node = 0};
  nodes.Reserve({{"a", 2}, first});
  EXPECT_EQ(nodes.Take(first)->cpus(), (CpuSet{0, 1, 2, 3}));
  EXPECT_EQ(Take(nodes, "a", 2), (CpuSet{4, 5}));
}

TEST(CoreAllocator, ModelsThatNameNothingShareWhatIsLeft) {
  CoreAllocator cores(Machine("core:8 pu:1"));
  const CoreRequest named{.owner = "a", .cpus = {0, 1, 2, 3}};
  cores.Reserve({{"b", 0}, named, {"c", 0}});
  EXPECT_EQ(Take(cores, "b", 0), (CpuSet{4})) << "half of three, or less";
  EXPECT_EQ(cores.Take(named)->cpus(), (CpuSet{0, 1, 2, 3}));
  EXPECT_EQ(Take(cores, "c", 0), (CpuSet{5}));
}

TEST(CoreAllocator, ASecondHardwareThreadHoldsItsCore) {
  CoreAllocator cores(Machine("core:4 pu:2"));
  const CoreRequest odd{.owner = "a", .cpus = {1}};
  const auto a = cores.Take(odd);
  EXPECT_EQ(Take(cores, "b", 2), (CpuSet{2, 4}));
  EXPECT_EQ(Take(cores, "c", 0), (CpuSet{2, 4})) << "what is free";
}

TEST(CoreAllocator, MoreModelsThanCoresShare) {
  CoreAllocator cores(Machine("core:2 pu:1"));
  cores.Reserve({{"a", 0}, {"b", 0}, {"c", 0}});
  EXPECT_EQ(Take(cores, "a", 0), (CpuSet{0}));
  EXPECT_EQ(Take(cores, "b", 0), (CpuSet{1}));
  EXPECT_EQ(Take(cores, "c", 0), (CpuSet{0}));
}

TEST(CoreAllocator, ALoneModelMayAskForEveryCore) {
  CoreAllocator cores(Machine("core:4 pu:1"));
  cores.Reserve({{"a", 4}});
  EXPECT_EQ(Take(cores, "a", 4), (CpuSet{0, 1, 2, 3}));
}

TEST(CoreAllocator, OneHardwareThreadOfEachCore) {
  CoreAllocator cores(Machine("core:4 pu:2"));
  EXPECT_EQ(Take(cores, "a", 0), (CpuSet{0, 2, 4}));
}

TEST(CoreAllocator, TeamsStayWithinOneNodeWhereTheyFit) {
  const config::Topology machine = Machine("numa:2 core:4 pu:1");
  CoreAllocator cores(machine);
  cores.Reserve({{"a", 4}, {"b", 3}});
  EXPECT_EQ(Take(cores, "a", 4), (CpuSet{0, 1, 2, 3}));
  EXPECT_EQ(Take(cores, "b", 3), (CpuSet{4, 5, 6}));
}

TEST(CoreAllocator, ANodeIsKept) {
  const config::Topology machine = Machine("numa:4 core:4 pu:2");
  CoreAllocator cores(machine);
  const CoreRequest third{.owner = "a", .threads = 3, .numa_node = 2};
  ASSERT_TRUE(cores.Check(third).ok());
  const auto a = cores.Take(third);
  EXPECT_EQ(a->cpus(), (CpuSet{16, 18, 20}));
  const auto b = cores.Take({.owner = "b", .numa_node = 2});
  EXPECT_EQ(b->cpus(), (CpuSet{22})) << "what is free of the node";
  const auto c = cores.Take({.owner = "c", .numa_node = 3});
  EXPECT_EQ(c->cpus(), (CpuSet{24, 26, 28})) << "its last core is for sockets";
  EXPECT_EQ(cores.Check({.owner = "d", .numa_node = 4}).field(), "numa_node");
}

// Two sockets whose CPUs have even and odd numbers, as many servers have.
TEST(CoreAllocator, InstancesStayWithinTheirSocket) {
  const config::Topology machine =
      Machine("numa:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)");
  CoreAllocator cores(machine);
  const auto lease = cores.Take({.owner = "a"});
  EXPECT_EQ(lease->cpus(), (CpuSet{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ByNode(lease->cpus(), machine),
            (std::vector<CpuSet>{{0, 2, 4, 6}, {1, 3, 5}}));
  EXPECT_EQ(InstanceTeams(ByNode(lease->cpus(), machine), 3),
            (std::vector<CpuSet>{{0, 2}, {4, 6}, {1, 3, 5}}));
}

TEST(CoreAllocator, FourNodesWithTwoThreadsACoreHaveAnInstanceEach) {
  const config::Topology machine = Machine("numa:4 core:2 pu:2");
  CoreAllocator cores(machine);
  const auto lease =
      cores.Take({.owner = "a", .cpus = {0, 2, 4, 6, 8, 10, 12, 14}});
  EXPECT_EQ(InstanceTeams(ByNode(lease->cpus(), machine), 4),
            (std::vector<CpuSet>{{0, 2}, {4, 6}, {8, 10}, {12, 14}}));
  EXPECT_EQ(InstanceTeams(ByNode(lease->cpus(), machine), 8).size(), 8u);
}

TEST(CoreAllocator, NamedCpusAreTaken) {
  CoreAllocator cores(Machine("core:4 pu:2"));
  const CoreRequest odd{.owner = "a", .cpus = {1, 6}};
  ASSERT_TRUE(cores.Check(odd).ok());
  cores.Reserve({{"b", 2}, odd});
  EXPECT_EQ(cores.Take(odd)->cpus(), (CpuSet{1, 6}));
  const Status refused = cores.Check({.owner = "c", .cpus = {1, 8}});
  EXPECT_EQ(refused.field(), "cpu_cores");
  EXPECT_NE(refused.message().find("cpu_cores has 8"), std::string::npos);
}

TEST(CoreAllocator, ATeamOfOtherCpusIsReplaced) {
  CoreAllocator cores(Machine("numa:2 core:4 pu:1"));
  const auto before = cores.Take({"a", 2});
  EXPECT_EQ(before->cpus(), (CpuSet{0, 1}));
  EXPECT_EQ(cores.Take({.owner = "a", .threads = 2, .numa_node = 1})->cpus(),
            (CpuSet{4, 5}));
  EXPECT_EQ(cores.Take({.owner = "a", .cpus = {2}})->cpus(), (CpuSet{2}));
}

TEST(CoreAllocator, AnOldLeaseDoesNotEndANewTeamOfTheSameCpus) {
  CoreAllocator cores(Machine("core:2 pu:1"));
  auto before = cores.Take({"a", 4});  // two more than there are
  const auto after = cores.Take({"a", 4});
  ASSERT_EQ(before->cpus(), after->cpus());
  before.reset();
  ASSERT_EQ(cores.Holders().size(), 1u);
  EXPECT_EQ(cores.Holders()[0].cpus, after->cpus());
}

TEST(CoreAllocator, SettingsSayWhichCpus) {
  config::ModelSettings settings{.name = "m"};
  settings.common.cpu_cores = "4,0-2,1";
  settings.common.numa_node = 1;
  const auto request = CoresFor(settings);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->owner, "m");
  EXPECT_EQ(request->cpus, (CpuSet{0, 1, 2, 4}));
  EXPECT_EQ(request->numa_node, 1);
  for (const char* bad : {"a", "1-", "3-2", "-1", "70000000", " "}) {
    settings.common.cpu_cores = bad;
    EXPECT_EQ(CoresFor(settings).status().field(), "cpu_cores") << bad;
  }
  settings.common.cpu_cores = "0-3";
  settings.common.threads = 2;
  EXPECT_EQ(CoresFor(settings).status().field(), "cpu_cores");
}

TEST(CoreAllocator, CoresComeBackWithTheLease) {
  CoreAllocator cores(Machine("core:8 pu:1"));
  auto a = cores.Take({"a", 4});
  auto b = cores.Take({"b", 0});
  EXPECT_EQ(b->cpus(), (CpuSet{4, 5, 6})) << "all that are free";
  a.reset();
  EXPECT_EQ(cores.Take({"c", 2})->cpus(), (CpuSet{0, 1}));
  ASSERT_EQ(cores.Holders().size(), 1u);
  EXPECT_EQ(cores.Holders()[0].owner, "b");
}

TEST(CoreAllocator, WithoutFreeCoresThoseWithTheFewestHoldersAreShared) {
  CoreAllocator cores(Machine("core:4 pu:1"));  // three compute
  const auto a = cores.Take({"a", 3});
  const auto b = cores.Take({"b", 1});
  EXPECT_EQ(b->cpus(), (CpuSet{0}));
  EXPECT_EQ(cores.Take({"c", 2})->cpus(), (CpuSet{1, 2}));
  EXPECT_EQ(cores.Take({"d", 0})->cpus(), (CpuSet{1})) << "one part in three";
}

TEST(CoreAllocator, VersionsOfAModelHaveOneTeam) {
  CoreAllocator cores(Machine("core:8 pu:1"));
  auto old_version = cores.Take({"a", 2});
  auto new_version = cores.Take({"a", 2});
  EXPECT_EQ(old_version->cpus(), new_version->cpus());
  old_version.reset();
  EXPECT_EQ(cores.Take({"b", 0})->cpus(), (CpuSet{2, 3, 4, 5, 6}));
}

TEST(CoreAllocator, AReloadMayAskForAnotherNumber) {
  CoreAllocator cores(Machine("core:8 pu:1"));
  auto small = cores.Take({"a", 2});
  auto large = cores.Take({"a", 4});
  EXPECT_EQ(large->cpus(), (CpuSet{0, 1, 2, 3}));
  small.reset();
  ASSERT_EQ(cores.Holders().size(), 1u);
  EXPECT_EQ(cores.Holders()[0].cpus, large->cpus());
  large.reset();
  EXPECT_TRUE(cores.Holders().empty());
}

TEST(CoreAllocator, ALeaseMayOutliveTheAllocator) {
  std::shared_ptr<const CoreAllocator::Lease> lease;
  {
    CoreAllocator cores(Machine("core:2 pu:1"));
    lease = cores.Take({"a", 1});
  }
  EXPECT_EQ(lease->cpus(), (CpuSet{0}));
}

}  // namespace
}  // namespace millrace::server
