// The operations of a group as messages between pairs of ranks. MPI's own
// collectives are not used: they choose the order of a sum by its length, and a
// blocking one of them waits without end for a rank that hangs. Sums of ranks
// on one machine need no messages: see sum_window.h.
#include <mpi.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/group/mpi/keepalive.h"
#include "models/group/mpi/process_group.h"
#include "models/group/mpi/sum_rows.h"
#include "models/group/mpi/sum_window.h"
#include "models/group/mpi/wait.h"

namespace millrace::models::mpi {
namespace {

// From so many values on each rank sums one part for all.
constexpr size_t kSumInParts = 16384;
constexpr int kTag = 1;

std::string ErrorText(int error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return {text, static_cast<size_t>(length)};
}

class MpiGroup final : public ProcessGroup {
 public:
  explicit MpiGroup(const JoinOptions& options) : timeout_(options.timeout_ms) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm here = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_,
                        MPI_INFO_NULL, &here);
    MPI_Comm_rank(here, &local_rank_);
    MPI_Comm_size(here, &local_size_);
    MPI_Comm_free(&here);
  }

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  int32_t local_rank() const override { return local_rank_; }
  int32_t local_size() const override { return local_size_; }

  std::span<float> SumBuffer(size_t count) override {
    if (local_size_ < size_) return {};
    auto window = SumWindow::Make(*this, count);
    if (window == nullptr) return {};
    return windows_.emplace_back(std::move(window))->own();
  }

  Status AllReduceSum(std::span<float> values) override {
    for (const auto& window : windows_) {
      const std::span<float> own = window->own();
      if (values.data() < own.data() ||
          values.data() >= own.data() + own.size()) {
        continue;
      }
      if (!status_.ok()) return status_;
      const auto late =
          window->Sum(static_cast<size_t>(values.data() - own.data()),
                      values.size(), Wait(timeout_));
      if (late) status_ = Late(*late);
      return status_;
    }
    return values.size() >= kSumInParts ? SumInParts(values)
                                        : SumAtOnce(values);
  }

  Status Broadcast(std::span<std::byte> bytes, Patience patience) override {
    if (rank_ > 0) {
      Receive(bytes, 0);
    } else {
      for (int to = 1; to < size_; ++to) Send(bytes, to);
    }
    return Complete(patience);
  }

  Status Gather(std::span<const float> own, std::span<float> all) override {
    if (rank_ > 0) {
      Send(std::as_bytes(own), 0);
      return Complete(Patience::kStep);
    }
    std::ranges::copy(own, all.begin());
    for (int from = 1; from < size_; ++from) {
      Receive(std::as_writable_bytes(all.subspan(
                  static_cast<size_t>(from) * own.size(), own.size())),
              from);
    }
    return Complete(Patience::kStep);
  }

  Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                   Patience patience) override {
    for (int other = 0; other < size_; ++other) {
      const auto part =
          all.subspan(static_cast<size_t>(other) * own.size(), own.size());
      if (other == rank_) {
        std::ranges::copy(own, part.begin());
        continue;
      }
      Receive(part, other);
      Send(own, other);
    }
    return Complete(patience);
  }

  void Leave() override { MPI_Finalize(); }
  void Abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  // Everybody sends all values to everybody: one message's delay.
  Status SumAtOnce(std::span<float> values) {
    const size_t n = values.size();
    received_.resize(static_cast<size_t>(size_) * n);
    rows_.clear();
    for (int other = 0; other < size_; ++other) {
      const auto row =
          std::span(received_).subspan(static_cast<size_t>(other) * n, n);
      rows_.push_back(other == rank_ ? values.data() : row.data());
      if (other == rank_) continue;
      Receive(std::as_writable_bytes(row), other);
      Send(std::as_bytes(values), other);
    }
    RETURN_IF_ERROR(Complete(Patience::kStep));
    SumRows(rows_, 0, n, std::array{values.data()});
    return OkStatus();
  }

  // Rank r sums part r and sends the sum: two messages' delay, but the bytes
  // that a rank sends do not grow with the group.
  Status SumInParts(std::span<float> values) {
    const auto part = [&](int of) {
      const size_t size = static_cast<size_t>(size_);
      const size_t begin = values.size() * static_cast<size_t>(of) / size;
      const size_t end = values.size() * (static_cast<size_t>(of) + 1) / size;
      return values.subspan(begin, end - begin);
    };
    const std::span<float> own = part(rank_);
    received_.resize(static_cast<size_t>(size_) * own.size());
    rows_.clear();
    for (int other = 0; other < size_; ++other) {
      const auto row = std::span(received_).subspan(
          static_cast<size_t>(other) * own.size(), own.size());
      rows_.push_back(other == rank_ ? own.data() : row.data());
      if (other == rank_) continue;
      Receive(std::as_writable_bytes(row), other);
      Send(std::as_bytes(part(other)), other);
    }
    RETURN_IF_ERROR(Complete(Patience::kStep));
    SumRows(rows_, 0, own.size(), std::array{own.data()});
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      Receive(std::as_writable_bytes(part(other)), other);
      Send(std::as_bytes(own), other);
    }
    return Complete(Patience::kStep);
  }

  void Send(std::span<const std::byte> bytes, int to) {
    Begun(to, [&](MPI_Request* request) {
      return MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                       to, kTag, MPI_COMM_WORLD, request);
    });
  }
  void Receive(std::span<std::byte> bytes, int from) {
    Begun(from, [&](MPI_Request* request) {
      return MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                       from, kTag, MPI_COMM_WORLD, request);
    });
  }
  template <typename Begin>
  void Begun(int other, Begin begin) {
    if (!status_.ok()) return;
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = begin(&request);
    if (error != MPI_SUCCESS) {
      status_ = Lost(other, ErrorText(error));
      return;
    }
    requests_.push_back(request);
    others_.push_back(other);
  }

  Status Lost(int other, const std::string& why) const {
    return Unavailable("rank " + std::to_string(other) +
                       " of the tensor-parallel group is lost for rank " +
                       std::to_string(rank_) + ": " + why);
  }

  Status Late(int other) const {
    return Lost(other, "it did not answer within " +
                           std::to_string(timeout_.count()) +
                           " ms; see its machine, or raise "
                           "tensor_parallel_timeout");
  }

  // Waits for all that was begun.
  Status Complete(Patience patience) {
    Wait wait(patience == Patience::kStep ? std::optional(timeout_)
                                          : std::nullopt);
    while (status_.ok()) {
      int done = 0;
      const int error =
          MPI_Testall(static_cast<int>(requests_.size()), requests_.data(),
                      &done, MPI_STATUSES_IGNORE);
      if (error != MPI_SUCCESS) {
        status_ = Lost(Pending(), ErrorText(error));
      } else if (done != 0) {
        break;
      } else if (!wait.Pause()) {
        status_ = Late(Pending());
      }
    }
    requests_.clear();
    others_.clear();
    return status_;
  }

  // A rank whose message is missing. Testall leaves requests as they are while
  // one is not done.
  int Pending() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      const int error = MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
      if (error != MPI_SUCCESS || done == 0) return others_[i];
    }
    return rank_;
  }

  const std::chrono::milliseconds timeout_;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::vector<std::unique_ptr<SumWindow>> windows_;
  Status status_;  // once it is bad the group is broken
  std::vector<MPI_Request> requests_;
  std::vector<int> others_;  // whom each request is with
  std::vector<float> received_;
  std::vector<const float*> rows_;
};

// True under mpirun of Open MPI, a PMIx launcher or another MPI's launcher.
bool StartedByMpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

Status Begin() {
  if (!StartedByMpi()) {
    return FailedPrecondition(
               "tensor_parallel_size is above 1, but this process was not "
               "started by mpirun; say mpirun -np N millrace serve MODEL "
               "--tensor-parallel-size N")
        .At("tensor_parallel_size");
  }
  // No orphans where the process that started the ranks is killed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int level = 0;
  const int error =
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  if (error != MPI_SUCCESS) {
    return FailedPrecondition("MPI cannot begin: " + ErrorText(error))
        .At("tensor_parallel_size");
  }
  if (level < MPI_THREAD_SERIALIZED) {
    return FailedPrecondition(
               "this MPI cannot be used by one thread after another "
               "(MPI_THREAD_SERIALIZED); install another build of it")
        .At("tensor_parallel_size");
  }
  return OkStatus();
}

}  // namespace
}  // namespace millrace::models::mpi

extern "C" __attribute__((visibility("default")))
millrace::models::mpi::ProcessGroup*
MillraceMpi(int32_t version, const millrace::models::mpi::JoinOptions& options,
            millrace::Status* failure) {
  using namespace millrace::models::mpi;  // NOLINT
  if (version != kVersion) return nullptr;
  *failure = Begin();
  if (!failure->ok()) return nullptr;
  auto group = std::make_unique<MpiGroup>(options);
  // On one machine mpirun sees its ranks end by itself. Other launchers than
  // Open MPI's mpirun have ways of their own.
  const bool has_machines = group->local_size() < group->size();
  if (has_machines && std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
    *failure = CheckKeepalive(
        options.timeout_ms,
        [](const char* name) -> const char* { return std::getenv(name); });
    if (!failure->ok()) return nullptr;
  }
  return group.release();
}
