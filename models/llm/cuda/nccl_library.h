// NCCL, NVIDIA's library of operations among GPUs: the functions of it that a
// group of ranks uses. It is opened when such a group is started, so that a
// server without it lacks nothing. Declared here after NCCL's public interface,
// so that no header of it is needed to build.
//
//   ASSIGN_OR_RETURN(const auto nccl, NcclLibrary::Open());
//   const int error = nccl->all_reduce(from, to, count, kNcclFloat, kNcclSum,
//                                      comm, stream);
//   if (error != kNcclSuccess) return Unavailable(nccl->TextOf(error, comm));
//
// Immutable once opened.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "config/base/status.h"

namespace millrace::models {

// A communicator: one rank's end of a group.
using NcclComm = void*;
// ncclUniqueId: what rank 0 makes and all ranks connect by.
struct NcclKey {
  char bytes[128];
};

// Numbers of NCCL's enumerations.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclFloat = 7;
inline constexpr int kNcclSum = 0;
// major * 10000 + minor * 100 + patch. Older ones were not looked at.
inline constexpr int kOldestNccl = 21800;

struct NcclLibrary {
  // The file that MILLRACE_NCCL names, else libnccl.so.2. It stays open.
  // FAILED_PRECONDITION says in one sentence why it cannot be used.
  static StatusOr<std::shared_ptr<const NcclLibrary>> Open();

  // What went wrong, for people. `comm` may be null.
  std::string TextOf(int error, NcclComm comm) const;
  std::string VersionText() const;  // "2.28.9"

  int version = 0;
  // As in NCCL's manual; each returns kNcclSuccess or the number of an error.
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclKey*) = nullptr;
  int (*comm_init_rank)(NcclComm*, int size, NcclKey, int rank) = nullptr;
  int (*comm_destroy)(NcclComm) = nullptr;
  int (*comm_abort)(NcclComm) = nullptr;
  int (*comm_get_async_error)(NcclComm, int* error) = nullptr;
  int (*all_reduce)(const void*, void*, size_t count, int type, int op,
                    NcclComm, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, size_t count, int type, NcclComm,
                    void* stream) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(NcclComm) = nullptr;
};

}  // namespace millrace::models
