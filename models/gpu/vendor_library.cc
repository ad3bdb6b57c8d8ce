#include "models/gpu/vendor_library.h"

#include <dlfcn.h>

#include "config/base/variable.h"

namespace millrace::models {

VendorLibrary::VendorLibrary(const char* variable,
                             std::initializer_list<const char*> files) {
  const auto open = [this](const char* file) {
    file_ = file;
    handle_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr && why_.empty()) why_ = dlerror();
    return handle_ != nullptr;
  };
  if (const char* named = Variable(variable)) {
    open(named);
    return;
  }
  for (const char* file : files) {
    if (open(file)) return;
  }
}

void* VendorLibrary::Look(const char* name) {
  void* const found = dlsym(handle_, name);
  if (found == nullptr && missing_.empty()) missing_ = name;
  return found;
}

std::string TextOfVersion(int64_t version) {
  return std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace millrace::models
