// Memory that all ranks of one machine see, for sums over them: each rank
// writes its values into its own part, and a sum reads all parts where they
// are.
//
//   const auto window = SumWindow::Make(group, count);   // every rank
//   ... write window->own() ...
//   if (const auto late = window->Sum(begin, n, wait))   // every rank, the
//   same
//
// Every rank sums one part, in the order of ranks, and writes it to all; so a
// sum has the bits of one by messages, and each value crosses between two cores
// once each way. One thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/group/group.h"
#include "models/group/mpi/wait.h"

namespace millrace::models::mpi {

class SumWindow {
 public:
  // Called by all ranks of a group on one machine, with the same count; waits
  // for all. Null at all of them where there is no memory to share (/dev/shm is
  // full, or another one for some ranks), or where the group is broken.
  static std::unique_ptr<SumWindow> Make(Group& group, size_t count);
  ~SumWindow();
  SumWindow(const SumWindow&) = delete;
  SumWindow& operator=(const SumWindow&) = delete;

  std::span<float> own() const { return {rows_[rank_], count_}; }
  // Values [begin, begin + n) of own() become their sums over the ranks. Gives
  // the rank that has not come within the wait's limit, if one has not.
  std::optional<int> Sum(size_t begin, size_t n, const Wait& wait);

 private:
  struct alignas(64) Flag {
    std::atomic<uint64_t> meetings;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  SumWindow(const Group& group, size_t count);
  bool Map(int file);
  // All ranks have come here as often as this one, and see what was written
  // before.
  std::optional<int> Meet(Wait wait);

  const size_t count_;
  const size_t rank_;
  const size_t size_;
  const size_t stride_;  // bytes of a rank's part: its flag, then its values
  void* memory_ = nullptr;
  uint64_t meetings_ = 0;
  std::vector<Flag*> flags_;  // of each rank
  std::vector<float*> rows_;  // values of each rank
};

}  // namespace millrace::models::mpi
