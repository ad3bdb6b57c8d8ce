#include "models/llm/cuda/nccl_library.h"

#include "models/gpu/vendor_library.h"

namespace millrace::models {
namespace {

Status Refuse(const std::string& message) {
  return FailedPrecondition(message).At("tensor_parallel_size");
}

}  // namespace

StatusOr<std::shared_ptr<const NcclLibrary>> NcclLibrary::Open() {
  VendorLibrary library("MILLRACE_NCCL", {"libnccl.so.2"});
  if (!library.is_open()) {
    return Refuse(
        std::string("tensor_parallel_size above 1 on GPUs needs NCCL, which "
                    "cannot be opened (") +
        library.why() +
        "); install NVIDIA's libnccl2 or name the file with MILLRACE_NCCL, or "
        "set device to cpu");
  }
  auto nccl = std::make_shared<NcclLibrary>();
  library.Find("ncclGetVersion", nccl->get_version);
  if (nccl->get_version != nullptr) nccl->get_version(&nccl->version);
  library.Find("ncclGetUniqueId", nccl->get_unique_id);
  library.Find("ncclCommInitRank", nccl->comm_init_rank);
  library.Find("ncclCommDestroy", nccl->comm_destroy);
  library.Find("ncclCommAbort", nccl->comm_abort);
  library.Find("ncclCommGetAsyncError", nccl->comm_get_async_error);
  library.Find("ncclAllReduce", nccl->all_reduce);
  library.Find("ncclAllGather", nccl->all_gather);
  library.Find("ncclGetErrorString", nccl->get_error_string);
  library.Find("ncclGetLastError", nccl->get_last_error);
  if (nccl->version > 0 && nccl->version < kOldestNccl) {
    return Refuse("NCCL " + TextOfVersion(nccl->version) + " ('" +
                  library.file() +
                  "') is too old for tensor_parallel_size above 1, " +
                  TextOfVersion(kOldestNccl) +
                  " or later is needed; update it, or set device to cpu");
  }
  if (!library.missing().empty()) {
    return Refuse("'" + library.file() + "' is no NCCL, it has no function " +
                  library.missing() +
                  "; name the right file with MILLRACE_NCCL, or set device to "
                  "cpu");
  }
  return std::shared_ptr<const NcclLibrary>(std::move(nccl));
}

std::string NcclLibrary::TextOf(int error, NcclComm comm) const {
  std::string text = get_error_string(error);
  const char* last = get_last_error(comm);
  if (last != nullptr && *last != 0) text += std::string(" (") + last + ")";
  // A sentence stands on one line.
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

std::string NcclLibrary::VersionText() const { return TextOfVersion(version); }

}  // namespace millrace::models
