// All ranks meet twice in each operation: once to show their spans, once when
// everybody has read them.
#include "models/group/local_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "config/base/mutex.h"

namespace millrace::models {
namespace {

struct Room {
  explicit Room(int32_t size) : spans(static_cast<size_t>(size)) {}

  // Of each rank: its own to write before a meeting, everybody's to read
  // behind.
  std::vector<std::span<const std::byte>> spans;
  Mutex mu;
  CondVar changed;
  size_t arrived GUARDED_BY(mu) = 0;
  int64_t meeting GUARDED_BY(mu) = 0;
  bool broken GUARDED_BY(mu) = false;
};

class LocalGroup final : public Group {
 public:
  LocalGroup(int32_t rank, std::shared_ptr<Room> room)
      : rank_(rank), room_(std::move(room)) {}
  ~LocalGroup() override {
    const MutexLock lock(room_->mu);
    room_->broken = true;
    room_->changed.NotifyAll();
  }

  int32_t rank() const override { return rank_; }
  int32_t size() const override {
    return static_cast<int32_t>(room_->spans.size());
  }
  int32_t local_rank() const override { return rank_; }
  int32_t local_size() const override { return size(); }

  Status AllReduceSum(std::span<float> values) override {
    sum_.assign(values.size(), 0);
    RETURN_IF_ERROR(Show(std::as_bytes(values), values.size_bytes()));
    for (const auto& from : room_->spans) {
      const auto* other = reinterpret_cast<const float*>(from.data());
      for (size_t i = 0; i < sum_.size(); ++i) {
        sum_[i] =
            &from == &room_->spans.front() ? other[i] : sum_[i] + other[i];
      }
    }
    RETURN_IF_ERROR(Meet());
    std::ranges::copy(sum_, values.begin());
    return OkStatus();
  }

  Status Broadcast(std::span<std::byte> bytes, Patience) override {
    RETURN_IF_ERROR(Show(bytes, bytes.size()));
    if (rank_ > 0) std::ranges::copy(room_->spans[0], bytes.begin());
    return Meet();
  }

  Status Gather(std::span<const float> own, std::span<float> all) override {
    RETURN_IF_ERROR(Show(std::as_bytes(own), own.size_bytes()));
    if (rank_ == 0) CopyAll(std::as_writable_bytes(all));
    return Meet();
  }

  Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                   Patience) override {
    RETURN_IF_ERROR(Show(own, own.size()));
    CopyAll(all);
    return Meet();
  }

 private:
  // Spans of all ranks stand in the room until the next Meet.
  Status Show(std::span<const std::byte> own, size_t bytes) {
    room_->spans[static_cast<size_t>(rank_)] = own;
    RETURN_IF_ERROR(Meet());
    for (const auto& span : room_->spans) {
      CHECK(span.size() == bytes, "all ranks call the same operation");
    }
    return OkStatus();
  }

  Status Meet() {
    const MutexLock lock(room_->mu);
    const int64_t meeting = room_->meeting;
    if (!room_->broken && ++room_->arrived == room_->spans.size()) {
      room_->arrived = 0;
      ++room_->meeting;
      room_->changed.NotifyAll();
      return OkStatus();
    }
    while (room_->meeting == meeting && !room_->broken) {
      room_->changed.Wait(room_->mu);
    }
    if (room_->meeting != meeting) return OkStatus();
    return Unavailable("a rank of the group has left");
  }

  void CopyAll(std::span<std::byte> all) const {
    size_t at = 0;
    for (const auto& span : room_->spans) {
      std::memcpy(all.data() + at, span.data(), span.size());
      at += span.size();
    }
  }

  const int32_t rank_;
  const std::shared_ptr<Room> room_;  // shared by the ranks
  std::vector<float> sum_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> MakeLocalGroup(int32_t size) {
  const auto room = std::make_shared<Room>(size);
  std::vector<std::unique_ptr<Group>> ranks;
  for (int32_t rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<LocalGroup>(rank, room));
  }
  return ranks;
}

}  // namespace millrace::models
