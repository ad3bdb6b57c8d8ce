// A libnccl.so.2 for ranks on the emulated module, in one process or several of
// a machine: they add through shared memory, in the order of ranks. As with the
// real one, operations are a stream's work, and a stream whose others do not
// come stops until the communicator is aborted.
//
//   MILLRACE_FAKE_NCCL_VERSION     what it says it is: 21104 for 2.11.4
//   MILLRACE_FAKE_NCCL_FAIL        "WHAT@RANK" or "WHAT@RANK:N": init,
//                                  all_reduce or all_gather fail at the rank,
//                                  the latter in their N-th call; stop: its
//                                  stream stops in the N-th sum, with an error
//   MILLRACE_FAKE_NCCL_PATIENCE_MS  how long a stream waits for the others
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace {

constexpr int kFine = 0;
constexpr int kSystemError = 2;
constexpr int kInternalError = 3;
constexpr int kInvalidArgument = 4;
constexpr int kRemoteError = 6;
constexpr int kFloat = 7;
constexpr int kSum = 0;
constexpr int kMostRanks = 16;
constexpr int64_t kAtOnce = 1 << 20;  // values that a rank shows at a time

struct Key {
  char bytes[128];  // the name of the shared memory
};

// A rank shows values, counts up `shown`, and once all have, reads theirs and
// counts up `read`. Released and acquired: the values are seen with the count.
struct alignas(64) Rank {
  std::atomic<int64_t> shown;
  std::atomic<int64_t> read;
  float values[kAtOnce];
};
struct Room {
  std::atomic<int> joined;
  Rank ranks[kMostRanks];
};

struct Comm {
  Room* room = nullptr;
  int rank = 0;
  int size = 0;
  int64_t turns = 0;
  int sums = 0;  // calls
  int gatherings = 0;
  bool stops = false;
  std::atomic<bool> aborted = false;
  std::atomic<int> error = kFine;
  const void* stream = nullptr;

  ~Comm() {
    if (room != nullptr) munmap(room, sizeof(Room));
  }
};
// Graphs hold one longer than its owner does.
struct Handle {
  std::shared_ptr<Comm> comm;
};

void* Emulated(const char* symbol) {
  void* module =
      dlopen(std::getenv("MILLRACE_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
  void* found = module == nullptr ? nullptr : dlsym(module, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "fake_nccl: the module is not the emulated one\n");
    std::abort();
  }
  return found;
}

void Do(std::function<void()> work) {
  reinterpret_cast<void (*)(std::function<void()>*)>(
      Emulated("millrace_emulated_do"))(&work);
}

void Stop(const void* stream, bool stop) {
  reinterpret_cast<void (*)(const void*, bool)>(
      Emulated("millrace_emulated_stop"))(stream, stop);
}

int64_t NumberOf(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

bool Fails(const std::string& what, int rank, int call) {
  const char* text = std::getenv("MILLRACE_FAKE_NCCL_FAIL");
  if (text == nullptr) return false;
  const std::string here = what + "@" + std::to_string(rank);
  return text == here || text == here + ":" + std::to_string(call);
}

// False once patience has ended, or the communicator.
bool WaitUntil(Comm& comm, const std::function<bool()>& come) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(
                       NumberOf("MILLRACE_FAKE_NCCL_PATIENCE_MS", 30'000));
  int asked = 0;
  while (!come()) {
    if (comm.aborted || std::chrono::steady_clock::now() > end) return false;
    if (++asked < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

bool AllHave(const Comm& comm, std::atomic<int64_t> Rank::*count,
             int64_t turn) {
  for (int rank = 0; rank < comm.size; ++rank) {
    const Rank& other = comm.room->ranks[rank];
    if ((other.*count).load(std::memory_order_acquire) < turn) return false;
  }
  return true;
}

void GiveUp(Comm& comm) {
  comm.stops = true;
  Stop(comm.stream, true);
}

// Shows own[0…count) and then gives `take` each rank's values of them in order,
// kAtOnce at most.
using Take = std::function<void(int rank, const float* values, int64_t at,
                                int64_t count)>;
void Exchange(Comm& comm, const float* own, int64_t count, const Take& take) {
  if (comm.stops || comm.aborted) return;
  Rank& mine = comm.room->ranks[comm.rank];
  for (int64_t at = 0; at < count; at += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - at);
    const int64_t turn = ++comm.turns;
    if (!WaitUntil(comm,
                   [&] { return AllHave(comm, &Rank::read, turn - 1); })) {
      return GiveUp(comm);
    }
    std::copy_n(own + at, n, mine.values);
    mine.shown.store(turn, std::memory_order_release);
    if (!WaitUntil(comm, [&] { return AllHave(comm, &Rank::shown, turn); })) {
      return GiveUp(comm);
    }
    for (int rank = 0; rank < comm.size; ++rank) {
      take(rank, comm.room->ranks[rank].values, at, n);
    }
    mine.read.store(turn, std::memory_order_release);
  }
}

std::shared_ptr<Comm> CommOf(void* handle) {
  return static_cast<Handle*>(handle)->comm;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = static_cast<int>(NumberOf("MILLRACE_FAKE_NCCL_VERSION", 22809));
  return kFine;
}

const char* ncclGetErrorString(int error) {
  return error == kRemoteError ? "remote process exited" : "system error";
}
const char* ncclGetLastError(void*) { return "as the test\nwants it"; }

int ncclGetUniqueId(Key* key) {
  std::random_device random;
  std::snprintf(key->bytes, sizeof key->bytes, "/millrace_nccl_%d_%08x%08x",
                static_cast<int>(getpid()), random(), random());
  return kFine;
}

int ncclCommInitRank(void** out, int size, Key key, int rank) {
  if (size > kMostRanks) return kInvalidArgument;
  auto comm = std::make_shared<Comm>();
  const int file = shm_open(key.bytes, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Room)) != 0) return kSystemError;
  void* room =
      mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (room == MAP_FAILED) return kSystemError;
  comm->room = static_cast<Room*>(room);
  comm->rank = rank;
  comm->size = size;
  if (Fails("init", rank, 1)) {
    WaitUntil(*comm, [&] { return comm->room->joined > 0; });
    shm_unlink(key.bytes);
    return kSystemError;
  }
  ++comm->room->joined;
  const bool all_joined =
      WaitUntil(*comm, [&] { return comm->room->joined == size; });
  if (rank == 0) shm_unlink(key.bytes);
  if (!all_joined) return kRemoteError;
  *out = new Handle{std::move(comm)};
  return kFine;
}

int ncclCommDestroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return kFine;
}

int ncclCommAbort(void* handle) {
  const auto comm = CommOf(handle);
  comm->aborted = true;
  if (comm->stream != nullptr) Stop(comm->stream, false);
  return ncclCommDestroy(handle);
}

int ncclCommGetAsyncError(void* handle, int* error) {
  *error = CommOf(handle)->error;
  return kFine;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op,
                  void* handle, void* stream) {
  if (type != kFloat || op != kSum) return kInvalidArgument;
  const auto comm = CommOf(handle);
  comm->stream = stream;
  ++comm->sums;
  if (Fails("all_reduce", comm->rank, comm->sums)) return kInternalError;
  const bool stops = Fails("stop", comm->rank, comm->sums);
  Do([=] {
    if (stops) {
      comm->error = kRemoteError;
      return GiveUp(*comm);
    }
    auto* const out = static_cast<float*>(to);
    // Shown before it is overwritten.
    Exchange(*comm, static_cast<const float*>(from),
             static_cast<int64_t>(count),
             [&](int rank, const float* values, int64_t at, int64_t n) {
               for (int64_t i = 0; i < n; ++i) {
                 out[at + i] = rank == 0 ? values[i] : out[at + i] + values[i];
               }
             });
  });
  return kFine;
}

int ncclAllGather(const void* from, void* to, size_t count, int type,
                  void* handle, void* stream) {
  if (type != kFloat) return kInvalidArgument;
  const auto comm = CommOf(handle);
  comm->stream = stream;
  ++comm->gatherings;
  if (Fails("all_gather", comm->rank, comm->gatherings)) return kInternalError;
  Do([=] {
    const auto part = static_cast<int64_t>(count);
    auto* const out = static_cast<float*>(to);
    Exchange(*comm, static_cast<const float*>(from), part,
             [&](int rank, const float* values, int64_t at, int64_t n) {
               std::copy_n(values, n, out + rank * part + at);
             });
  });
  return kFine;
}

}  // extern "C"
