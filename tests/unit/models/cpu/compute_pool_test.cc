// The team: every worker runs, barriers order memory, teams larger than the
// machine still finish. The counters are plain ints on purpose: TSan and the
// sums would show a barrier that does not order.

#include "models/cpu/compute_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace millrace::models {
namespace {

// One CPU that this process may use; teams are n times the same one or "not
// pinned", so the tests do not depend on the machine.
int SomeCpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) return cpu;
  }
  return 0;
}

// Worker 0 pins the thread that calls Run: keep that off the test's thread.
template <typename Body>
void OnOwnThread(Body body) {
  std::thread thread(body);
  thread.join();
}

TEST(ComputePool, AnEmptyCpuSetIsATeamOfOne) {
  ComputePool pool({}, "test");
  EXPECT_EQ(pool.size(), 1);
  int runs = 0;
  pool.Run([&](Worker& worker) {
    EXPECT_EQ(worker.index(), 0);
    EXPECT_EQ(worker.count(), 1);
    worker.Barrier();
    ++runs;
  });
  EXPECT_EQ(runs, 1);
}

TEST(ComputePool, SharesCoverEverythingOnceInWholeUnits) {
  OnOwnThread([] {
    ComputePool pool({SomeCpu(), SomeCpu(), SomeCpu()}, "test");
    for (int64_t n : {0, 1, 2, 3, 7, 16, 100}) {
      for (int64_t unit : {1, 4, 16}) {
        std::vector<std::pair<int64_t, int64_t>> shares(3);
        pool.Run([&](Worker& worker) {
          shares[worker.index()] = worker.Share(n, unit);
        });
        EXPECT_EQ(shares[0].first, 0);
        EXPECT_EQ(shares[2].second, n);
        for (int i = 0; i < 3; ++i) {
          EXPECT_LE(shares[i].first, shares[i].second);
          const int64_t before = i > 0 ? shares[i - 1].second : 0;
          EXPECT_EQ(shares[i].first, before);
          EXPECT_TRUE(shares[i].first == n || shares[i].first % unit == 0);
        }
      }
    }
  });
}

// Each phase every worker adds its left neighbour's value of the phase before:
// one missed barrier breaks the closed form (all equal 2^phase).
void DoubleThroughBarriers(int team, int phases, int runs) {
  ComputePool pool(config::CpuSet(team, SomeCpu()), "test");
  for (int run = 0; run < runs; ++run) {
    std::vector<uint64_t> even(team, 1), odd(team, 0);
    pool.Run([&](Worker& worker) {
      for (int phase = 0; phase < phases; ++phase) {
        const auto& from = phase % 2 == 0 ? even : odd;
        auto& to = phase % 2 == 0 ? odd : even;
        const int me = worker.index();
        const int left = (me + worker.count() - 1) % worker.count();
        to[me] = from[me] + from[left];
        worker.Barrier();
      }
    });
    const auto& result = phases % 2 == 0 ? even : odd;
    for (uint64_t value : result) EXPECT_EQ(value, uint64_t{1} << phases);
  }
}

TEST(ComputePool, BarriersOrderPhasesWithMoreWorkersThanCpus) {
  OnOwnThread([] { DoubleThroughBarriers(2, 40, 20); });
  OnOwnThread([] { DoubleThroughBarriers(4, 40, 5); });
}

TEST(ComputePool, ALargeTeamGathersAtWorkerZero) {
  OnOwnThread([] { DoubleThroughBarriers(9, 11, 3); });
}

TEST(ComputePool, BarriersOrderPhasesOnSeparateCpus) {
  config::CpuSet cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  for (int cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  OnOwnThread([&] {
    ComputePool pool(cpus, "test");
    std::vector<int64_t> counts(cpus.size(), 0);
    int64_t sum = 0;
    pool.Run([&](Worker& worker) {
      for (int i = 0; i < 500; ++i) {
        ++counts[worker.index()];
        worker.Barrier();
        if (worker.index() == 0) {
          for (int64_t count : counts) sum += count;
        }
        worker.Barrier();
      }
    });
    EXPECT_EQ(sum, static_cast<int64_t>(cpus.size()) * 500 * 501 / 2);
  });
}

TEST(ComputePool, WorkersArePinnedAndNamed) {
  OnOwnThread([] {
    const int cpu = SomeCpu();
    ComputePool pool({cpu, cpu}, "team");
    std::vector<std::string> names(2);
    std::vector<int> cpus(2, -1);
    pool.Run([&](Worker& worker) {
      char name[16] = "";
      pthread_getname_np(pthread_self(), name, sizeof(name));
      names[worker.index()] = name;
      cpus[worker.index()] = sched_getcpu();
    });
    EXPECT_EQ(names[0], "team/0");
    EXPECT_EQ(names[1], "team/1");
    EXPECT_EQ(cpus[0], cpu);
    EXPECT_EQ(cpus[1], cpu);
  });
}

TEST(ComputePool, AnIdleTeamBurnsNoCpuAndWakesAgain) {
  OnOwnThread([] {
    ComputePool pool({SomeCpu(), SomeCpu(), SomeCpu()}, "test");
    const auto process_ms = [] {
      timespec now;
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
      return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
    };
    int runs[3] = {};
    pool.Run([&](Worker& worker) { ++runs[worker.index()]; });
    const double before = process_ms();
    // The time itself is what is measured: half a second of doing nothing.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_LT(process_ms() - before, 100.0);
    pool.Run([&](Worker& worker) { ++runs[worker.index()]; });
    for (int count : runs) EXPECT_EQ(count, 2);
  });
}

TEST(ComputePool, MeasuresABarrier) {
  OnOwnThread([] {
    ComputePool pool({SomeCpu(), SomeCpu()}, "test");
    EXPECT_GT(pool.MeasureBarrierNs(), 0.0);
  });
}

}  // namespace
}  // namespace millrace::models
