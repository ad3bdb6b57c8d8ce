#include "models/group/mpi/sum_window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "models/group/mpi/sum_rows.h"

namespace millrace::models::mpi {
namespace {

constexpr size_t kPage = 4096;

// What rank 0 tells the others.
struct Offer {
  int32_t is_made;
  char name[60];
};

// The pages are taken now: a sum never meets a full /dev/shm.
int NewFile(size_t bytes, Offer* offer) {
  static std::atomic<int> number = 0;
  std::snprintf(offer->name, sizeof(offer->name), "/millrace-sums-%d-%d",
                static_cast<int>(getpid()), ++number);
  const int file = shm_open(offer->name, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0) return file;
  offer->is_made = posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0;
  return file;
}

}  // namespace

SumWindow::SumWindow(const Group& group, size_t count)
    : count_(count),
      rank_(static_cast<size_t>(group.rank())),
      size_(static_cast<size_t>(group.size())),
      stride_((sizeof(Flag) + count * sizeof(float) + kPage - 1) / kPage *
              kPage) {}

std::unique_ptr<SumWindow> SumWindow::Make(Group& group, size_t count) {
  auto made = std::unique_ptr<SumWindow>(new SumWindow(group, count));
  Offer offer{};
  int file = -1;
  if (made->rank_ == 0) file = NewFile(made->size_ * made->stride_, &offer);
  Status status = group.Broadcast(std::as_writable_bytes(std::span(&offer, 1)),
                                  Patience::kIdle);
  if (made->rank_ != 0 && status.ok() && offer.is_made != 0) {
    file = shm_open(offer.name, O_RDWR, 0);
  }
  const std::byte is_mapped{status.ok() && offer.is_made != 0 && file >= 0 &&
                            made->Map(file)};
  if (file >= 0) close(file);
  // Every rank learns whether all ranks have mapped the file: if one has not,
  // none uses it. Behind that nobody opens the file by its name any more.
  std::vector<std::byte> all(made->size_);
  if (status.ok()) {
    status = group.AllGather(std::span(&is_mapped, 1), all, Patience::kIdle);
  }
  if (made->rank_ == 0 && file >= 0) shm_unlink(offer.name);
  if (!status.ok() || std::ranges::count(all, std::byte{0}) > 0) return nullptr;
  return made;
}

bool SumWindow::Map(int file) {
  void* const memory = mmap(nullptr, size_ * stride_, PROT_READ | PROT_WRITE,
                            MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = memory;
  for (size_t rank = 0; rank < size_; ++rank) {
    auto* const flag = reinterpret_cast<Flag*>(static_cast<std::byte*>(memory) +
                                               rank * stride_);
    flags_.push_back(flag);  // a new file is all zeros
    rows_.push_back(reinterpret_cast<float*>(flag + 1));
  }
  return true;
}

SumWindow::~SumWindow() {
  if (memory_ != nullptr) munmap(memory_, size_ * stride_);
}

std::optional<int> SumWindow::Sum(size_t begin, size_t n, const Wait& wait) {
  if (const auto late = Meet(wait)) return late;
  const size_t from = begin + n * rank_ / size_;
  const size_t to = begin + n * (rank_ + 1) / size_;
  SumRows(rows_, from, to, rows_);
  return Meet(wait);
}

std::optional<int> SumWindow::Meet(Wait wait) {
  flags_[rank_]->meetings.store(++meetings_, std::memory_order_release);
  for (size_t other = 0; other < size_; ++other) {
    while (flags_[other]->meetings.load(std::memory_order_acquire) <
           meetings_) {
      if (!wait.Pause()) return static_cast<int>(other);
    }
  }
  return std::nullopt;
}

}  // namespace millrace::models::mpi
