#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "config/base/module_places.h"
#include "models/group/mpi/process_group.h"

namespace millrace::models::mpi {
namespace {

constexpr const char* kRemedy =
    "; build with libopenmpi-dev and install the module, or leave "
    "tensor_parallel_size out";

Status Refuse(const std::string& message) {
  return FailedPrecondition(message).At("tensor_parallel_size");
}

StatusOr<Entry> Open() {
  std::string tried;
  for (const std::string& place :
       ModulePlaces("MILLRACE_MPI_MODULE", kModuleFile)) {
    if (!tried.empty()) tried += " and ";
    tried += "'" + place + "'";
    std::error_code error;
    if (!std::filesystem::exists(place, error)) continue;
    // Open MPI's own plugins look its symbols up among the global ones.
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) {
      return Refuse(std::string("the MPI module cannot be opened (") +
                    dlerror() +
                    "); install openmpi-bin, or leave tensor_parallel_size "
                    "out");
    }
    const auto entry = reinterpret_cast<Entry>(dlsym(handle, kEntryName));
    if (entry != nullptr) return entry;
    return Refuse("'" + place + "' is no MPI module of this program" + kRemedy);
  }
  return Refuse("there is no MPI module, looked for " + tried + kRemedy);
}

}  // namespace

StatusOr<std::shared_ptr<ProcessGroup>> Join(const JoinOptions& options) {
  ASSIGN_OR_RETURN(const Entry entry, Open());
  Status failure;
  ProcessGroup* const group = entry(kVersion, options, &failure);
  RETURN_IF_ERROR(failure);
  if (group == nullptr) {
    return Refuse(
        "the MPI module is of another version of this program; install both "
        "from one build");
  }
  return std::shared_ptr<ProcessGroup>(group);
}

}  // namespace millrace::models::mpi
