// Machines come from hwloc's synthetic descriptions, control groups from files
// in a temporary folder, so the answers do not depend on where this runs.
#include "config/topology.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "config/cgroup.h"

namespace millrace::config {
namespace {

namespace fs = std::filesystem;

class TopologyTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) /
            ("millrace_topology_" + std::to_string(getpid()) + info->name());
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    const fs::path file = root_.string() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  StatusOr<Topology> Detect(const std::string& machine) {
    return Topology::Detect(
        {.hwloc_synthetic = machine, .root = root_.string()});
  }

  fs::path root_;
};

TEST_F(TopologyTest, SyntheticMachineShowsCoresNodesAndCaches) {
  const auto topology = Topology::Detect(
      {.hwloc_synthetic = "pack:2 [numa] l3:2 core:2 pu:2", .root = ""});
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  ASSERT_EQ(topology->cores().size(), 8u);
  const Core& last = topology->cores().back();
  EXPECT_EQ(last.cpus, (std::vector<int>{14, 15}));
  EXPECT_EQ(last.socket, 1);
  EXPECT_EQ(last.numa_node, 1);
  EXPECT_EQ(last.l3_group, 3);
  EXPECT_EQ(topology->cpu_limit(), 8);
  EXPECT_GT(topology->memory_limit_bytes(), 0);
  EXPECT_NE(topology->Describe().find("8 physical cores"), std::string::npos);
}

TEST_F(TopologyTest, BadSyntheticMachineIsRefused) {
  const auto bad = Topology::Detect({.hwloc_synthetic = "core:x", .root = ""});
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TopologyTest, OneThreadOfEachCoreNodeByNode) {
  const auto topology = Detect("pack:2 [numa] l3:2 core:2 pu:2");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->PhysicalCores(1), (CpuSet{0}));
  EXPECT_EQ(topology->PhysicalCores(4), (CpuSet{0, 2, 4, 6}));
  EXPECT_EQ(topology->PhysicalCores(5), (CpuSet{0, 2, 4, 6, 8}));
  EXPECT_EQ(topology->PhysicalCores(0).size(), 8u);
  EXPECT_EQ(topology->PhysicalCores(100).size(), 8u);
}

TEST_F(TopologyTest, TeamStaysInTheNodeThatHoldsItWhole) {
  Put("/proc/self/cgroup", "0::/");
  Put("/sys/fs/cgroup/cpuset.cpus.effective", "3,4-7");
  const auto topology = Detect("numa:2 core:4 pu:1");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->cores().size(), 5u);
  EXPECT_EQ(topology->PhysicalCores(4), (CpuSet{4, 5, 6, 7}));
}

TEST_F(TopologyTest, VersionTwoTakesTheTightestOfAllParents) {
  Put("/proc/self/cgroup", "0::/a/b");
  Put("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  Put("/sys/fs/cgroup/a/cpu.max", "250000 100000");
  Put("/sys/fs/cgroup/a/b/memory.max", "2147483648");
  Put("/sys/fs/cgroup/a/memory.max", "1073741824");
  Put("/sys/fs/cgroup/memory.max", "max");
  Put("/proc/meminfo", "MemTotal:  8388608 kB");
  const auto topology = Detect("core:8 pu:2");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->cpu_limit(), 2);  // 2.5 whole CPUs
  EXPECT_EQ(topology->memory_limit_bytes(), int64_t{1} << 30);
  EXPECT_EQ(topology->PhysicalCores(0), (CpuSet{0, 2}));
}

TEST_F(TopologyTest, VersionOneReadsEachControllersOwnHierarchy) {
  Put("/proc/self/cgroup",
      "4:memory:/job/x\n3:cpuset:/job\n2:cpu,cpuacct:/job\n0::/");
  Put("/proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "
      "rw,cpu,cpuacct\n"
      "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory");
  Put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "150000");
  Put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000");
  Put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  Put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  Put("/sys/fs/cgroup/cpuset/job/cpuset.cpus", "0-4");
  Put("/sys/fs/cgroup/memory/job/x/memory.limit_in_bytes",
      "9223372036854771712");
  Put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "268435456");
  Put("/proc/meminfo", "MemTotal:  8388608 kB");
  const auto topology = Detect("core:8 pu:1");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->cores().size(), 5u);
  EXPECT_EQ(topology->cpu_limit(), 3);
  EXPECT_EQ(topology->memory_limit_bytes(), 268435456);
}

TEST_F(TopologyTest, HybridReadsVersionOneLimitsBesideAnEmptyVersionTwo) {
  Put("/proc/self/cgroup", "4:memory:/\n1:cpu:/\n0::/");
  Put("/sys/fs/cgroup/unified/cgroup.procs", "1");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "40000");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  const auto topology = Detect("core:4 pu:1");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->cpu_limit(), 1);  // never below one
}

TEST_F(TopologyTest, ContainerMountShowsOnlyItsSubtree) {
  Put("/proc/self/cgroup", "0::/docker/abc/inner");
  Put("/proc/self/mountinfo",
      "41 31 0:38 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  Put("/sys/fs/cgroup/inner/cpu.max", "100000 100000");
  Put("/sys/fs/cgroup/cpu.max", "300000 100000");
  EXPECT_EQ(Detect("core:8 pu:1")->cpu_limit(), 1);
}

TEST_F(TopologyTest, GarbageInTheFilesLimitsNothing) {
  Put("/proc/self/cgroup", "0::/../../x\nnonsense\n1:\n");
  Put("/sys/fs/cgroup/cpu.max", "-5 0");
  Put("/sys/fs/cgroup/memory.max", "12x");
  Put("/sys/fs/cgroup/cpuset.cpus.effective", "3-1,99999999999");
  Put("/proc/meminfo", "MemTotal:  1024 kB");
  const auto topology = Detect("core:4 pu:1");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->cpu_limit(), 4);
  EXPECT_EQ(topology->cores().size(), 4u);
  EXPECT_EQ(topology->memory_limit_bytes(), 1 << 20);
}

TEST_F(TopologyTest, CpusetThatLeavesNothingIsAnError) {
  Put("/proc/self/cgroup", "0::/");
  Put("/sys/fs/cgroup/cpuset.cpus.effective", "64");
  const auto topology = Detect("core:4 pu:1");
  EXPECT_EQ(topology.status().code(), StatusCode::kFailedPrecondition);
}

TEST(CpuList, KernelListsParse) {
  EXPECT_EQ(ParseCpuList("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(ParseCpuList("7"), (std::vector<int>{7}));
  for (const char* bad : {"", "a", "1-", "-1", "2-1", "1,,2", "1 2"}) {
    EXPECT_FALSE(ParseCpuList(bad)) << bad;
  }
}

TEST(ThisMachine, IsDetectedWithinItsAffinity) {
  const auto topology = Topology::Detect();
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  EXPECT_GE(topology->cpu_limit(), 1);
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  for (const int cpu : topology->PhysicalCores(0)) {
    EXPECT_TRUE(CPU_ISSET(cpu, &mine));
  }
}

TEST(PinThisThread, NamesAndBindsTheCaller) {
  const int cpu = Topology::Detect()->PhysicalCores(1).front();
  std::thread([&] {
    ASSERT_TRUE(PinThisThread({cpu}, "a-name-longer-than-15").ok());
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof(name));
    EXPECT_STREQ(name, "a-name-longer-t");
    EXPECT_EQ(sched_getcpu(), cpu);
  }).join();
}

TEST(PinThisThread, MissingCpuIsAStatus) {
  std::thread([] {
    const Status status = PinThisThread({4095}, "t");
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("4095"), std::string::npos);
    EXPECT_FALSE(PinThisThread({-1}, "t").ok());
    EXPECT_TRUE(PinThisThread({}, "only-named").ok());
  }).join();
}

}  // namespace
}  // namespace millrace::config
