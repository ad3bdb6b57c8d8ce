#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "config/base/module_places.h"
#include "models/cpu/onednn/onednn.h"

namespace millrace::models::onednn {
namespace {

StatusOr<const Library*> Find() {
  std::string tried;
  for (const std::string& place :
       ModulePlaces("MILLRACE_ONEDNN_MODULE", kModuleFile)) {
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
