#include "models/group/mpi/sum_window.h"

#include <new>

#include "models/group/mpi/sum_rows.h"

namespace millrace::models::mpi {

std::unique_ptr<SumWindow> SumWindow::Make(MPI_Comm here, size_t count) {
  auto made = std::unique_ptr<SumWindow>(new SumWindow(count));
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(here, &rank);
  MPI_Comm_size(here, &size);
  MPI_Comm_set_errhandler(here, MPI_ERRORS_RETURN);
  void* own = nullptr;
  int is_made =
      MPI_Win_allocate_shared(
          static_cast<MPI_Aint>(sizeof(Flag) + count * sizeof(float)), 1,
          MPI_INFO_NULL, here, &own, &made->window_) == MPI_SUCCESS;
  if (is_made == 0) made->window_ = MPI_WIN_NULL;
  // All or none.
  MPI_Allreduce(MPI_IN_PLACE, &is_made, 1, MPI_INT, MPI_MIN, here);
  if (is_made == 0) return nullptr;
  made->rank_ = static_cast<size_t>(rank);
  for (int other = 0; other < size; ++other) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* part = nullptr;
    MPI_Win_shared_query(made->window_, other, &bytes, &unit, &part);
    made->flags_.push_back(static_cast<Flag*>(part));
    made->rows_.push_back(
        reinterpret_cast<float*>(static_cast<Flag*>(part) + 1));
  }
  new (own) Flag{};
  MPI_Win_lock_all(MPI_MODE_NOCHECK, made->window_);
  MPI_Barrier(here);
  return made;
}

SumWindow::~SumWindow() {
  if (window_ == MPI_WIN_NULL) return;
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

std::optional<int> SumWindow::Sum(size_t begin, size_t n, const Wait& wait) {
  if (const auto late = Meet(wait)) return late;
  const size_t size = rows_.size();
  const size_t from = begin + n * rank_ / size;
  const size_t to = begin + n * (rank_ + 1) / size;
  SumRows(rows_, from, to, rows_);
  return Meet(wait);
}

std::optional<int> SumWindow::Meet(Wait wait) {
  flags_[rank_]->meetings.store(++meetings_, std::memory_order_release);
  for (size_t other = 0; other < flags_.size(); ++other) {
    while (flags_[other]->meetings.load(std::memory_order_acquire) <
           meetings_) {
      if (!wait.Pause()) return static_cast<int>(other);
    }
  }
  return std::nullopt;
}

}  // namespace millrace::models::mpi
