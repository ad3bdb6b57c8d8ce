// The one place with state of the process: a signal handler can have no other.
#include "models/memory/truncation_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

namespace millrace::models {
namespace {

// Lock-free, so that the handler may touch them. Relaxed as in FileCover.
std::atomic<int64_t> num_cuts{0};
std::atomic<uintptr_t> page_bytes{4096};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// Addresses that are covered. Slots are written under `mappings_mu`; the
// handler reads them without. An end of 0 marks a slot that the handler must
// not use: it is stored last and cleared first. A slot without a cover is free.
struct Mapping {
  std::atomic<uintptr_t> end{0};
  std::atomic<uintptr_t> begin{0};
  std::atomic<FileCover*> cover{nullptr};
};
std::array<Mapping, 4096> mappings;
std::mutex mappings_mu;
thread_local const TruncationGuard* innermost = nullptr;

// Null: no guard covers the address.
FileCover* CoverOf(uintptr_t address) {
  for (const Mapping& mapping : mappings) {
    const uintptr_t end = mapping.end.load();
    FileCover* const cover = mapping.cover.load();
    if (address < end && address >= mapping.begin.load() &&
        end == mapping.end.load()) {
      return cover;
    }
  }
  return nullptr;
}

// Under mappings_mu.
void Free(Mapping& mapping) {
  mapping.end.store(0);
  mapping.cover.store(nullptr);
}

// Puts a page of zeros where the file has none any more; the read goes on
// there.
void OnBusError(int signal_number, siginfo_t* info, void*) {
  const uintptr_t size = page_bytes.load(std::memory_order_relaxed);
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const uintptr_t page = address / size * size;
  FileCover* const cover =
      info->si_code == BUS_ADRERR ? CoverOf(address) : nullptr;
  if (cover != nullptr &&
      mmap(reinterpret_cast<void*>(page), size, PROT_READ,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
    num_cuts.fetch_add(1, std::memory_order_relaxed);
    cover->CountCut();
    return;
  }
  // Again, and this time it ends the process.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal_number, &standard, nullptr);
}

void InstallOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes.store(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)),
                     std::memory_order_relaxed);
    struct sigaction action {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace

FileCover::~FileCover() {
  const std::lock_guard lock(mappings_mu);
  for (Mapping& mapping : mappings) {
    if (mapping.cover.load() == this) Free(mapping);
  }
}

Status FileCover::Check() const {
  if (num_cuts_.load(std::memory_order_relaxed) == 0) return OkStatus();
  return DataLoss(
      "a file of the model was cut short while the model was served, so that "
      "its weights are gone; put the file back under its name and load the "
      "model again");
}

TruncationGuard::TruncationGuard() : TruncationGuard(nullptr) {}

TruncationGuard::TruncationGuard(std::shared_ptr<FileCover> cover)
    : cuts_before_(num_cuts.load(std::memory_order_relaxed)),
      cover_(cover != nullptr ? std::move(cover)
                              : std::make_shared<FileCover>()),
      outer_(innermost) {
  InstallOnce();
  innermost = this;
}

TruncationGuard::~TruncationGuard() { innermost = outer_; }

std::shared_ptr<FileCover> TruncationGuard::Cover() {
  return innermost == nullptr ? nullptr : innermost->cover_;
}

void TruncationGuard::AddMapping(std::span<const std::byte> bytes) {
  if (innermost == nullptr || bytes.empty()) return;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const std::lock_guard lock(mappings_mu);
  for (Mapping& mapping : mappings) {
    if (mapping.cover.load() != nullptr) continue;
    mapping.cover.store(innermost->cover_.get());
    mapping.begin.store(begin);
    mapping.end.store(begin + bytes.size());
    return;
  }
}

void TruncationGuard::RemoveMapping(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const std::lock_guard lock(mappings_mu);
  for (Mapping& mapping : mappings) {
    if (mapping.cover.load() == nullptr || mapping.begin.load() != begin) {
      continue;
    }
    Free(mapping);
  }
}

Status TruncationGuard::Check() const {
  if (num_cuts.load(std::memory_order_relaxed) == cuts_before_) {
    return OkStatus();
  }
  return DataLoss(
      "a file of the model was cut short while it was read; write files under "
      "another name and rename them when they are complete, then load again");
}

}  // namespace millrace::models
