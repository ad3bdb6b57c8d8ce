// Memory that all ranks of one machine see, for sums over them: each rank
// writes its values into its own part, and a sum reads all parts where they are
// (MPI-3's shared memory windows, MPI 3.1 section 11.2.3).
//
//   const auto window = SumWindow::Make(here, count);    // every rank
//   ... write window->own() ...
//   const int late = window->Sum(n, wait);               // every rank, as many
//
// Every rank sums one part, in the order of ranks, and writes it to all; so a
// sum has the bits of one by messages, and each value crosses between two cores
// once each way. One thread at a time.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/group/mpi/wait.h"

namespace millrace::models::mpi {

class SumWindow {
 public:
  // Called by all ranks of `here`, which are on one machine, with the same
  // count. Null at all of them where one has no memory to share (/dev/shm is
  // full).
  static std::unique_ptr<SumWindow> Make(MPI_Comm here, size_t count);
  // Called by all ranks, before MPI ends.
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

  explicit SumWindow(size_t count) : count_(count) {}
  // All ranks have come here as often as this one, and see what was written
  // before.
  std::optional<int> Meet(Wait wait);

  const size_t count_;
  MPI_Win window_ = MPI_WIN_NULL;
  size_t rank_ = 0;
  uint64_t meetings_ = 0;
  std::vector<Flag*> flags_;  // of each rank, in front of its values
  std::vector<float*> rows_;  // values of each rank
};

}  // namespace millrace::models::mpi
