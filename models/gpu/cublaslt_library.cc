#include "models/gpu/cublaslt_library.h"

#include <utility>

#include "models/gpu/vendor_library.h"

namespace millrace::models {
namespace {

Status Refuse(const std::string& message) {
  return FailedPrecondition(message).At("gemm_backend");
}

}  // namespace

StatusOr<std::shared_ptr<const CublasLtLibrary>> CublasLtLibrary::Open() {
  VendorLibrary library("MILLRACE_CUBLASLT",
                        {"libcublasLt.so.13", "libcublasLt.so.12"});
  if (!library.is_open()) {
    return Refuse("cuBLASLt cannot be opened (" + library.why() +
                  "); install NVIDIA's libcublas or name the file with "
                  "MILLRACE_CUBLASLT, or set gemm_backend to native");
  }
  auto cublaslt = std::make_shared<CublasLtLibrary>();
  library.Find("cublasLtGetVersion", cublaslt->get_version);
  if (cublaslt->get_version != nullptr) {
    cublaslt->version = cublaslt->get_version();
  }
  library.Find("cublasLtGetStatusString", cublaslt->get_status_string);
  library.Find("cublasLtCreate", cublaslt->create);
  library.Find("cublasLtDestroy", cublaslt->destroy);
  library.Find("cublasLtMatmulDescCreate", cublaslt->desc_create);
  library.Find("cublasLtMatmulDescDestroy", cublaslt->desc_destroy);
  library.Find("cublasLtMatmulDescSetAttribute", cublaslt->desc_set);
  library.Find("cublasLtMatrixLayoutCreate", cublaslt->layout_create);
  library.Find("cublasLtMatrixLayoutDestroy", cublaslt->layout_destroy);
  library.Find("cublasLtMatmulPreferenceCreate", cublaslt->preference_create);
  library.Find("cublasLtMatmulPreferenceDestroy", cublaslt->preference_destroy);
  library.Find("cublasLtMatmulPreferenceSetAttribute",
               cublaslt->preference_set);
  library.Find("cublasLtMatmulAlgoGetHeuristic", cublaslt->get_heuristic);
  library.Find("cublasLtMatmulAlgoCheck", cublaslt->algo_check);
  library.Find("cublasLtMatmulAlgoConfigGetAttribute",
               cublaslt->algo_config_get);
  library.Find("cublasLtMatmul", cublaslt->matmul);
  if (cublaslt->version > 0 && cublaslt->version < cublaslt::kOldest) {
    return Refuse("cuBLASLt " + TextOfVersion(cublaslt->version) + " ('" +
                  library.file() + "') is too old, " +
                  TextOfVersion(cublaslt::kOldest) +
                  " or later is needed; update it, or set gemm_backend to "
                  "native");
  }
  if (!library.missing().empty()) {
    return Refuse("'" + library.file() +
                  "' is no cuBLASLt, it has no function " + library.missing() +
                  "; name the right file with MILLRACE_CUBLASLT, or set "
                  "gemm_backend to native");
  }
  return std::shared_ptr<const CublasLtLibrary>(std::move(cublaslt));
}

std::string CublasLtLibrary::VersionText() const {
  return TextOfVersion(version);
}

}  // namespace millrace::models
