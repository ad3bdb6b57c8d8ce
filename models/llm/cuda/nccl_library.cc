#include "models/llm/cuda/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>

namespace millrace::models {
namespace {

std::string TextOfVersion(int version) {
  return std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Status Refuse(const std::string& message) {
  return FailedPrecondition(message).At("tensor_parallel_size");
}

}  // namespace

StatusOr<std::shared_ptr<const NcclLibrary>> NcclLibrary::Open() {
  const char* named = std::getenv("MILLRACE_NCCL");
  const std::string file = named != nullptr ? named : "libnccl.so.2";
  // Never closed: its threads and exit handlers are its own.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Refuse(
        std::string("tensor_parallel_size above 1 on GPUs needs NCCL, which "
                    "cannot be opened (") +
        dlerror() +
        "); install NVIDIA's libnccl2 or name the file with MILLRACE_NCCL, or "
        "set device to cpu");
  }
  auto nccl = std::make_shared<NcclLibrary>();
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find("ncclGetVersion", nccl->get_version);
  if (nccl->get_version != nullptr) nccl->get_version(&nccl->version);
  find("ncclGetUniqueId", nccl->get_unique_id);
  find("ncclCommInitRank", nccl->comm_init_rank);
  find("ncclCommDestroy", nccl->comm_destroy);
  find("ncclCommAbort", nccl->comm_abort);
  find("ncclCommGetAsyncError", nccl->comm_get_async_error);
  find("ncclAllReduce", nccl->all_reduce);
  find("ncclAllGather", nccl->all_gather);
  find("ncclGetErrorString", nccl->get_error_string);
  find("ncclGetLastError", nccl->get_last_error);
  if (nccl->version > 0 && nccl->version < kOldestNccl) {
    return Refuse("NCCL " + TextOfVersion(nccl->version) + " ('" + file +
                  "') is too old for tensor_parallel_size above 1, " +
                  TextOfVersion(kOldestNccl) +
                  " or later is needed; update it, or set device to cpu");
  }
  if (!missing.empty()) {
    return Refuse("'" + file + "' is no NCCL, it has no function " + missing +
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
