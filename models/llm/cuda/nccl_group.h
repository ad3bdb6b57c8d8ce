// The GPUs of a tensor-parallel group, one for each rank, joined by NCCL. Sums
// and gathering are work of the device's stream, like kernels; they may be
// captured in CUDA graphs, then by all ranks or by none.
//
//   ASSIGN_OR_RETURN(CudaBuffer sums, NcclGroup::Reserve(*context));
//   // the ranks meet, and all have it
//   ASSIGN_OR_RETURN(auto gpus,
//                    NcclGroup::Connect({...}, std::move(sums)));  // all ranks
//   RETURN_IF_ERROR(gpus->AllReduceSum(values, count));       // all ranks
//   RETURN_IF_ERROR(gpus->Wait());        // instead of the context's
//
// A sum of two ranks has the same bits wherever a value stands and however many
// there are. NCCL chooses the order of a sum of more ranks by that, the same on
// every run.
//
// An error breaks the group: every later call gives it again. It is UNAVAILABLE
// unless the rank's own device failed. No call waits longer than the timeout
// for other ranks. One thread at a time, but not always the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "config/base/status.h"
#include "models/gpu/cuda_context.h"
#include "models/llm/cuda/nccl_library.h"

namespace millrace::models {

struct NcclGroupOptions {
  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<CudaContext> context;  // this rank's GPU
  NcclKey key;                           // rank 0's
  int32_t rank = 0;
  int32_t size = 1;
  std::chrono::milliseconds timeout{60'000};
};

class NcclGroup {
 public:
  // What Connect needs of the rank's GPU for a while, 16 MiB. Asked for before
  // the ranks connect, while a rank without it can still tell the others.
  static StatusOr<CudaBuffer> Reserve(CudaContext& context);
  // Waits for all ranks. Also does an operation of each size on `sums`, what
  // Reserve gave, so that what NCCL prepares at the first one is done before a
  // step.
  static StatusOr<std::shared_ptr<NcclGroup>> Connect(
      const NcclGroupOptions& options, CudaBuffer sums);
  // Graphs that hold operations of the group are gone before.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int32_t rank() const { return options_.rank; }
  int32_t size() const { return options_.size; }
  const Status& status() const { return status_; }

  // Each value on the device becomes its sum over the ranks.
  Status AllReduceSum(float* values, int64_t count);
  // As many values from each rank become all[size][count] on every rank.
  Status AllGather(const float* own, float* all, int64_t count);
  // All that was asked of the device's stream has run.
  Status Wait();
  // Ends what runs on the device for the group; returns `why`, or why it was
  // broken before.
  Status Break(const Status& why);

 private:
  NcclGroup(const NcclGroupOptions& options, NcclComm comm)
      : options_(options), comm_(comm) {}
  // OK once a launch cannot wait for room in the stream's queue.
  Status KeepQueueShort();
  Status Judge(int error, const char* what);

  const NcclGroupOptions options_;
  NcclComm comm_;  // null once broken
  Status status_;
  int32_t queued_ = 0;  // operations since the stream was seen empty
};

}  // namespace millrace::models
