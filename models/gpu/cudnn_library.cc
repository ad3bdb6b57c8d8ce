#include "models/gpu/cudnn_library.h"

#include <utility>

#include "models/gpu/vendor_library.h"

namespace millrace::models {
namespace {

Status Refuse(const std::string& message) {
  return FailedPrecondition(message + ", or set conv_backend to native")
      .At("conv_backend");
}

}  // namespace

StatusOr<std::shared_ptr<const CudnnLibrary>> CudnnLibrary::Open() {
  VendorLibrary library("MILLRACE_CUDNN", {"libcudnn.so.9"});
  if (!library.is_open()) {
    return Refuse("cuDNN cannot be opened (" + library.why() +
                  "); install NVIDIA's libcudnn9 or name the file with "
                  "MILLRACE_CUDNN");
  }
  auto opened = std::make_shared<CudnnLibrary>();
  library.Find("cudnnGetVersion", opened->get_version);
  if (opened->get_version != nullptr) opened->version = opened->get_version();
  library.Find("cudnnGetErrorString", opened->get_error_string);
  library.Find("cudnnCreate", opened->create);
  library.Find("cudnnDestroy", opened->destroy);
  library.Find("cudnnSetStream", opened->set_stream);
  library.Find("cudnnBackendCreateDescriptor", opened->create_descriptor);
  library.Find("cudnnBackendDestroyDescriptor", opened->destroy_descriptor);
  library.Find("cudnnBackendFinalize", opened->finalize);
  library.Find("cudnnBackendSetAttribute", opened->set_attribute);
  library.Find("cudnnBackendGetAttribute", opened->get_attribute);
  library.Find("cudnnBackendExecute", opened->execute);
  // Before version 9 versions were major * 1000 + minor * 100 + patch.
  if (opened->version > 0 && opened->version < cudnn::kOldest) {
    return Refuse("cuDNN in '" + library.file() + "' (version " +
                  std::to_string(opened->version / 1000) + ") is too old, " +
                  TextOfVersion(cudnn::kOldest) +
                  " or later is needed; update it");
  }
  if (!library.missing().empty()) {
    return Refuse("'" + library.file() + "' is no cuDNN, it has no function " +
                  library.missing() +
                  "; name the right file with MILLRACE_CUDNN");
  }
  return std::shared_ptr<const CudnnLibrary>(std::move(opened));
}

std::string CudnnLibrary::VersionText() const { return TextOfVersion(version); }

}  // namespace millrace::models
