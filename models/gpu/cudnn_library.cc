#include "models/gpu/cudnn_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>
#include <utility>

namespace millrace::models {
namespace {

std::string TextOfVersion(size_t version) {
  return std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Status Refuse(const std::string& message) {
  return FailedPrecondition(message + ", or set conv_backend to native")
      .At("conv_backend");
}

}  // namespace

StatusOr<std::shared_ptr<const CudnnLibrary>> CudnnLibrary::Open() {
  const char* named = std::getenv("MILLRACE_CUDNN");
  const std::string file = named != nullptr ? named : "libcudnn.so.9";
  // Never closed: its threads and exit handlers are its own.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Refuse("cuDNN cannot be opened (" + std::string(dlerror()) +
                  "); install NVIDIA's libcudnn9 or name the file with "
                  "MILLRACE_CUDNN");
  }
  auto opened = std::make_shared<CudnnLibrary>();
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find("cudnnGetVersion", opened->get_version);
  if (opened->get_version != nullptr) opened->version = opened->get_version();
  find("cudnnGetErrorString", opened->get_error_string);
  find("cudnnCreate", opened->create);
  find("cudnnDestroy", opened->destroy);
  find("cudnnSetStream", opened->set_stream);
  find("cudnnBackendCreateDescriptor", opened->create_descriptor);
  find("cudnnBackendDestroyDescriptor", opened->destroy_descriptor);
  find("cudnnBackendFinalize", opened->finalize);
  find("cudnnBackendSetAttribute", opened->set_attribute);
  find("cudnnBackendGetAttribute", opened->get_attribute);
  find("cudnnBackendExecute", opened->execute);
  // Before version 9 versions were major * 1000 + minor * 100 + patch.
  if (opened->version > 0 && opened->version < cudnn::kOldest) {
    return Refuse("cuDNN in '" + file + "' (version " +
                  std::to_string(opened->version / 1000) + ") is too old, " +
                  TextOfVersion(cudnn::kOldest) +
                  " or later is needed; update it");
  }
  if (!missing.empty()) {
    return Refuse("'" + file + "' is no cuDNN, it has no function " + missing +
                  "; name the right file with MILLRACE_CUDNN");
  }
  return std::shared_ptr<const CudnnLibrary>(std::move(opened));
}

std::string CudnnLibrary::VersionText() const { return TextOfVersion(version); }

}  // namespace millrace::models
