#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "models/cpu/onednn/onednn.h"

namespace millrace::models::onednn {
namespace {

std::vector<std::string> Places() {
  if (const char* path = std::getenv("MILLRACE_ONEDNN_MODULE")) return {path};
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto folder = program.parent_path();
  return {folder / kModuleFile,
          folder.parent_path() / "lib/millrace" / kModuleFile};
}

StatusOr<const Library*> Find() {
  std::string tried;
  for (const std::string& place : Places()) {
    if (!tried.empty()) tried += " and ";
    tried += "'" + place + "'";
    std::error_code error;
    if (!std::filesystem::exists(place, error)) continue;
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return FailedPrecondition(
                 std::string("the oneDNN module cannot be opened (") +
                 dlerror() + "); set graph_backend to millrace")
          .At("graph_backend");
    }
    const auto entry = reinterpret_cast<Entry>(dlsym(handle, kEntryName));
    const Library* library = entry == nullptr ? nullptr : entry(kVersion);
    if (library == nullptr) {
      return FailedPrecondition("the oneDNN module '" + place +
                                "' is of another version of this program; "
                                "install both from one build, or set "
                                "graph_backend to millrace")
          .At("graph_backend");
    }
    return library;
  }
  return FailedPrecondition("there is no oneDNN module, looked for " + tried +
                            "; install it, or set graph_backend to millrace")
      .At("graph_backend");
}

}  // namespace

StatusOr<const Library*> Open() {
  static const StatusOr<const Library*> found = Find();
  return found;
}

}  // namespace millrace::models::onednn
