// A group whose ranks are processes that mpirun started, on one machine or
// several. MPI itself is behind a module that is opened when it is first asked
// for, so that a server without it lacks nothing.
//
//   ASSIGN_OR_RETURN(const auto group, mpi::Join({.timeout_ms = 60'000}));
//   ...                       // models/group/group.h
//   group->Leave();           // or group->Abort(1)
//
// What crosses this header is plain data and virtual functions: both sides come
// from one build.
#pragma once

#include <cstdint>
#include <memory>

#include "config/base/status.h"
#include "models/group/group.h"

namespace millrace::models::mpi {

struct JoinOptions {
  int64_t timeout_ms = 60'000;  // of Patience::kStep
};

class ProcessGroup : public Group {
 public:
  // The end of MPI in this process; waits for all ranks to leave. The thread
  // that called Join.
  virtual void Leave() = 0;
  // Ends this process and all others of the group with this code.
  [[noreturn]] virtual void Abort(int exit_code) = 0;
};

// Once in a process, before it has threads of its own. FAILED_PRECONDITION says
// where the module was looked for, or that mpirun did not start this process.
// The process then ends with the one that started it.
// $MILLRACE_MPI_MODULE names the module's file; else it stands beside the
// program, or in ../lib/millrace.
StatusOr<std::shared_ptr<ProcessGroup>> Join(const JoinOptions& options);

// ---- the module ----
inline constexpr char kModuleFile[] = "libmillrace_mpi.so";
inline constexpr char kEntryName[] = "MillraceMpi";
// Raised whenever this header or group.h changes.
inline constexpr int32_t kVersion = 2;
// Null where the version is another one, or where `*failure` says why.
using Entry = ProcessGroup* (*)(int32_t version, const JoinOptions& options,
                                Status* failure);

}  // namespace millrace::models::mpi
