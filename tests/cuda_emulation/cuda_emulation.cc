// Fibers by ucontext, switched by _setjmp and _longjmp, which make no system
// call. Each runs until it waits or ends and goes on to the next one itself. A
// fiber is started once: it runs thread i of all blocks of all grids.
#include "tests/cuda_emulation/cuda_emulation.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace cuda_emulation {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kMostExchanged = 64;
// Of a block, of compute capability 8.6, which has least.
constexpr size_t kMostShared = 99 << 10;

struct Copy {
  void* to;
  const void* from;
  int bytes;
  bool there;
};

struct Fiber {
  Place place;
  bool started = false;
  bool done = false;  // in this block
  jmp_buf at;
  ucontext_t begin;
  const char* what = nullptr;  // of the exchange it waits in
  // Groups of copies that wait, oldest first; the last one is still open.
  std::deque<std::vector<Copy>> copies;
};

// What the lanes of a warp give one another. Two, used in turns: a lane may
// reach the next exchange before another has read this one.
struct Warp {
  alignas(16) std::byte given[2][32 * kMostExchanged];
  int turn = 0;
  size_t lanes = 0, waiting = 0, done = 0;
};

struct Block {
  size_t threads = 0;
  std::vector<Fiber> fibers;  // at least as many
  std::vector<Warp> warps;
  std::vector<std::byte> shared;
  const std::function<void()>* body = nullptr;
  Fiber* running = nullptr;
  jmp_buf finished;
  // Threads that can go on, in the order in which they will, from `next`.
  std::vector<size_t> ready;
  size_t next = 0;
  std::vector<size_t> complete;  // warps whose lanes all wait or have ended
  size_t at_barrier = 0;
};

// One grid at a time, whichever thread launches it: the device has one stream,
// so to say. The state below is that grid's.
std::mutex running;
thread_local Recording* recording = nullptr;
Block block;
std::vector<std::unique_ptr<std::byte[]>> stacks;
std::mt19937_64 random_order{1};
struct Allocation {
  void* base;
  size_t length;
  int64_t bytes;
  int device;
};
std::mutex allocating;  // guards what follows
std::map<void*, Allocation> allocations;
std::map<int, int64_t> allocated_bytes;  // by device

[[noreturn]] void Die(const char* why, const char* what = "") {
  const Place& at = block.running != nullptr ? block.running->place : Place{};
  std::fprintf(stderr, "cuda_emulation: %s %s; thread %u of block %u %u %u\n",
               why, what, at.thread.x, at.block.x, at.block.y, at.block.z);
  std::abort();
}

[[noreturn]] void RunNext();

void Enter() {
  // Block after block: RunBlock has reset what belongs to one.
  for (;;) {
    (*block.body)();
    Fiber& fiber = *block.running;
    const size_t w = fiber.place.thread.x / 32;
    Warp& warp = block.warps[w];
    fiber.done = true;
    ++warp.done;
    if (warp.waiting > 0 && warp.waiting + warp.done == warp.lanes)
      block.complete.push_back(w);
    if (_setjmp(fiber.at) == 0) RunNext();
  }
}

void MakeReady(size_t begin, size_t end) {
  block.ready.resize(end - begin);
  std::iota(block.ready.begin(), block.ready.end(), begin);
  std::shuffle(block.ready.begin(), block.ready.end(), random_order);
  block.next = 0;
}

// Makes threads ready whose warp or barrier is complete; false: all have ended.
bool Release() {
  const auto& fibers = block.fibers;
  // One warp only, so that it may run far ahead of the others.
  if (!block.complete.empty()) {
    std::swap(block.complete[random_order() % block.complete.size()],
              block.complete.back());
    const size_t w = block.complete.back();
    block.complete.pop_back();
    Warp& warp = block.warps[w];
    const size_t begin = w * 32, end = begin + warp.lanes;
    for (size_t i = begin; i < end; ++i) {
      if (fibers[i].done) {
        Die("a lane has left before",
            fibers[i == begin ? end - 1 : begin].what);
      }
      if (fibers[i].what != fibers[begin].what &&
          std::strcmp(fibers[i].what, fibers[begin].what) != 0) {
        Die("lanes of a warp are in different operations:", fibers[i].what);
      }
    }
    warp.waiting = 0;
    warp.turn ^= 1;
    MakeReady(begin, end);
    return true;
  }
  for (size_t w = 0; w < block.warps.size(); ++w) {
    if (block.warps[w].waiting == 0) continue;
    size_t i = w * 32;
    while (fibers[i].what == nullptr) ++i;
    Die("a warp waits for ever in", fibers[i].what);
  }
  if (block.at_barrier == 0) return false;
  // On a GPU threads that have left count as arrived; our kernels do not use
  // that, and forgotten barriers look the same.
  if (block.at_barrier != block.threads) Die("not all threads reach a barrier");
  block.at_barrier = 0;
  MakeReady(0, block.threads);
  return true;
}

void RunNext() {
  if (block.next == block.ready.size() && !Release()) {
    block.running = nullptr;
    _longjmp(block.finished, 1);
  }
  const size_t index = block.ready[block.next++];
  Fiber& fiber = block.fibers[index];
  block.running = &fiber;
  here = &fiber.place;
  if (fiber.started) _longjmp(fiber.at, 1);
  fiber.started = true;
  getcontext(&fiber.begin);
  fiber.begin.uc_stack.ss_sp = stacks[index].get();
  fiber.begin.uc_stack.ss_size = kStackBytes;
  fiber.begin.uc_link = nullptr;
  makecontext(&fiber.begin, Enter, 0);
  setcontext(&fiber.begin);
  Die("a fiber could not be started");
}

void RunBlock(dim3 at, dim3 grid, dim3 size) {
  for (size_t i = 0; i < block.threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.done = false;
    fiber.what = nullptr;
    if (fiber.copies.size() != 1 || !fiber.copies.front().empty())
      fiber.copies.assign(1, {});
    fiber.place = {dim3(static_cast<unsigned>(i), 0, 0), at, size, grid};
  }
  for (size_t w = 0; w < block.warps.size(); ++w) {
    block.warps[w].lanes = std::min<size_t>(32, block.threads - w * 32);
    block.warps[w].waiting = block.warps[w].done = 0;
  }
  // All bits set is NaN as f32 and -1 as an integer.
  std::fill(block.shared.begin(), block.shared.end(), std::byte{0xff});
  MakeReady(0, block.threads);
  if (_setjmp(block.finished) == 0) RunNext();
}

}  // namespace

const Place* here = nullptr;
std::byte* SharedMemory() { return block.shared.data(); }
void SetSeed(uint64_t seed) {
  const std::lock_guard lock(running);
  random_order.seed(seed);
}

void RunGrid(dim3 grid, dim3 size, size_t shared_bytes,
             const std::function<void()>& body) {
  if (size.y != 1 || size.z != 1 || size.x == 0 || size.x > 1024 ||
      grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
      grid.z > 65535 || shared_bytes > kMostShared) {
    Die("no GPU would launch this grid");
  }
  const std::lock_guard lock(running);
  while (stacks.size() < size.x) {
    stacks.push_back(std::make_unique<std::byte[]>(kStackBytes));
  }
  block.threads = size.x;
  if (block.fibers.size() < size.x) block.fibers.resize(size.x);
  block.warps.resize((size.x + 31) / 32);
  block.shared.resize(shared_bytes);
  block.body = &body;
  std::vector<uint64_t> blocks(uint64_t{grid.x} * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), uint64_t{0});
  std::shuffle(blocks.begin(), blocks.end(), random_order);
  for (const uint64_t i : blocks) {
    RunBlock(dim3(static_cast<unsigned>(i % grid.x),
                  static_cast<unsigned>(i / grid.x % grid.y),
                  static_cast<unsigned>(i / grid.x / grid.y)),
             grid, size);
  }
}

void Record(Recording* to) { recording = to; }

void Do(std::function<void()> work) {
  if (recording != nullptr) {
    recording->push_back(std::move(work));
  } else {
    work();
  }
}

void Barrier() {
  ++block.at_barrier;
  if (_setjmp(block.running->at) == 0) RunNext();
}

const void* Exchange(const char* what, const void* in, size_t size) {
  if (size > kMostExchanged) Die("too many bytes in", what);
  const size_t thread = here->thread.x;
  if (here->block_dim.x % 32 != 0) Die("part of a warp in", what);
  Warp& warp = block.warps[thread / 32];
  const std::byte* given = warp.given[warp.turn];
  std::memcpy(warp.given[warp.turn] + thread % 32 * size, in, size);
  block.running->what = what;
  if (++warp.waiting + warp.done == warp.lanes)
    block.complete.push_back(thread / 32);
  if (_setjmp(block.running->at) == 0) RunNext();
  return given;
}

void MultiplyFragment(const uint32_t x[4], const uint32_t w[2], float sums[4],
                      float (*value)(uint16_t)) {
  // A lane's own values, so that each is converted once: x of k = 2 t, 2 t + 1
  // in row g, in row g + 8, then of k + 8 likewise; w of k, of k + 8.
  struct Given {
    float x[8];
    float w[4];
  };
  const auto half = [&](uint32_t word, int i) {
    return value(static_cast<uint16_t>(word >> 16 * i));
  };
  Given own;
  for (int i = 0; i < 8; ++i) own.x[i] = half(x[i / 2], i % 2);
  for (int i = 0; i < 4; ++i) own.w[i] = half(w[i / 2], i % 2);
  Given all[32];
  std::memcpy(all, Exchange("mma", &own, sizeof own), sizeof all);
  for (int i = 0; i < 4; ++i) {
    const int row = Lane() / 4 + i / 2 * 8;
    const int output = Lane() % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2;
      const Given& left = all[row % 8 * 4 + pair];
      const Given& right = all[output * 4 + pair];
      sums[i] = std::fmaf(left.x[2 * (row / 8) + k / 8 * 4 + k % 2],
                          right.w[2 * (k / 8) + k % 2], sums[i]);
    }
  }
}

void LoadFragments(const void* row, uint32_t out[4], bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) Die("ldmatrix, not aligned");
  const void* rows[32];
  std::memcpy(
      rows,
      Exchange(transposed ? "ldmatrix.trans" : "ldmatrix", &row, sizeof row),
      sizeof rows);
  const auto value = [&](int matrix, int r, int column) -> uint32_t {
    return static_cast<const uint16_t*>(rows[8 * matrix + r])[column];
  };
  const int g = Lane() / 4, t = Lane() % 4;
  for (int m = 0; m < 4; ++m) {
    out[m] = transposed ? value(m, 2 * t, g) | value(m, 2 * t + 1, g) << 16
                        : value(m, g, 2 * t) | value(m, g, 2 * t + 1) << 16;
  }
}

void CopyAsync(void* to, const void* from, int bytes, bool there) {
  const auto misplaced = [&](const void* at) {
    return reinterpret_cast<uintptr_t>(at) % static_cast<unsigned>(bytes) != 0;
  };
  if (misplaced(to) || misplaced(from)) Die("cp.async, not aligned");
  block.running->copies.back().push_back({to, from, bytes, there});
}

void CommitCopies() { block.running->copies.emplace_back(); }

void WaitCopies(int pending) {
  auto& copies = block.running->copies;
  while (copies.size() > static_cast<size_t>(pending) + 1) {
    for (const Copy& copy : copies.front()) {
      const auto n = static_cast<size_t>(copy.bytes);
      if (copy.there) {
        std::memcpy(copy.to, copy.from, n);
      } else {
        std::memset(copy.to, 0, n);
      }
    }
    copies.pop_front();
  }
}

void MultiplyTf32(const uint32_t x[4], const uint32_t w[2], float sums[4]) {
  struct Given {
    uint32_t x[4];
    uint32_t w[2];
  };
  Given own;
  std::memcpy(own.x, x, sizeof own.x);
  std::memcpy(own.w, w, sizeof own.w);
  Given all[32];
  std::memcpy(all, Exchange("mma tf32", &own, sizeof own), sizeof all);
  const auto value = [](uint32_t word) {
    word &= ~0x1fffu;  // which the tensor core does not look at
    float as_float;
    std::memcpy(&as_float, &word, sizeof word);
    return as_float;
  };
  for (int i = 0; i < 4; ++i) {
    const int row = Lane() / 4 + i / 2 * 8;
    const int output = Lane() % 4 * 2 + i % 2;
    for (int k = 0; k < 8; ++k) {
      const Given& left = all[row % 8 * 4 + k % 4];
      const Given& right = all[output * 4 + k % 4];
      sums[i] = std::fmaf(value(left.x[row / 8 + k / 4 * 2]),
                          value(right.w[k / 4]), sums[i]);
    }
  }
}

void MultiplyBytes(const uint32_t x[4], const uint32_t w[2], int32_t sums[4]) {
  struct Given {
    uint32_t x[4];
    uint32_t w[2];
  };
  Given own;
  std::memcpy(own.x, x, sizeof own.x);
  std::memcpy(own.w, w, sizeof own.w);
  Given all[32];
  std::memcpy(all, Exchange("mma bytes", &own, sizeof own), sizeof all);
  for (int i = 0; i < 4; ++i) {
    const int row = Lane() / 4 + i / 2 * 8;
    const int output = Lane() % 4 * 2 + i % 2;
    for (int four = 0; four < 8; ++four) {
      const Given& left = all[row % 8 * 4 + four % 4];
      const Given& right = all[output * 4 + four % 4];
      sums[i] =
          DotBytes(left.x[row / 8 + four / 4 * 2], right.w[four / 4], sums[i]);
    }
  }
}

void* AllocateDevice(int64_t bytes, int device) {
  if (bytes < 0 || bytes > (int64_t{1} << 40)) return nullptr;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // Ends 16 bytes before the page that cannot be touched at most, because loads
  // take up to 16 bytes that are aligned.
  const size_t used = (static_cast<size_t>(bytes) + 15) / 16 * 16;
  const size_t length = (used + page - 1) / page * page + page;
  void* base = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* end = static_cast<std::byte*>(base) + length - page;
  if (mprotect(end, page, PROT_NONE) != 0) Die("mprotect failed");
  void* memory = end - used;
  const std::lock_guard lock(allocating);
  allocations[memory] = {base, length, bytes, device};
  allocated_bytes[device] += bytes;
  return memory;
}

void FreeDevice(void* memory) {
  const std::lock_guard lock(allocating);
  const auto found = allocations.find(memory);
  if (found == allocations.end()) Die("freed twice, or never allocated");
  munmap(found->second.base, found->second.length);
  allocated_bytes[found->second.device] -= found->second.bytes;
  allocations.erase(found);
}

int64_t AllocatedBytes(int device) {
  const std::lock_guard lock(allocating);
  return allocated_bytes[device];
}

}  // namespace cuda_emulation
