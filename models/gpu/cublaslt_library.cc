#include "models/gpu/cublaslt_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>
#include <utility>
#include <vector>

namespace millrace::models {
namespace {

std::string TextOfVersion(size_t version) {
  return std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Status Refuse(const std::string& message) {
  return FailedPrecondition(message).At("gemm_backend");
}

}  // namespace

StatusOr<std::shared_ptr<const CublasLtLibrary>> CublasLtLibrary::Open() {
  const char* named = std::getenv("MILLRACE_CUBLASLT");
  const std::vector<std::string> files =
      named != nullptr
          ? std::vector<std::string>{named}
          : std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12"};
  // Never closed: its threads and exit handlers are its own.
  void* library = nullptr;
  std::string file;
  std::string why;  // of the first
  for (const std::string& tried : files) {
    file = tried;
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (why.empty()) why = dlerror();
  }
  if (library == nullptr) {
    return Refuse("cuBLASLt cannot be opened (" + why +
                  "); install NVIDIA's libcublas or name the file with "
                  "MILLRACE_CUBLASLT, or set gemm_backend to native");
  }
  auto cublaslt = std::make_shared<CublasLtLibrary>();
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find("cublasLtGetVersion", cublaslt->get_version);
  if (cublaslt->get_version != nullptr) {
    cublaslt->version = cublaslt->get_version();
  }
  find("cublasLtGetStatusString", cublaslt->get_status_string);
  find("cublasLtCreate", cublaslt->create);
  find("cublasLtDestroy", cublaslt->destroy);
  find("cublasLtMatmulDescCreate", cublaslt->desc_create);
  find("cublasLtMatmulDescDestroy", cublaslt->desc_destroy);
  find("cublasLtMatmulDescSetAttribute", cublaslt->desc_set);
  find("cublasLtMatrixLayoutCreate", cublaslt->layout_create);
  find("cublasLtMatrixLayoutDestroy", cublaslt->layout_destroy);
  find("cublasLtMatmulPreferenceCreate", cublaslt->preference_create);
  find("cublasLtMatmulPreferenceDestroy", cublaslt->preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute", cublaslt->preference_set);
  find("cublasLtMatmulAlgoGetHeuristic", cublaslt->get_heuristic);
  find("cublasLtMatmulAlgoCheck", cublaslt->algo_check);
  find("cublasLtMatmulAlgoConfigGetAttribute", cublaslt->algo_config_get);
  find("cublasLtMatmul", cublaslt->matmul);
  if (cublaslt->version > 0 && cublaslt->version < cublaslt::kOldest) {
    return Refuse("cuBLASLt " + TextOfVersion(cublaslt->version) + " ('" +
                  file + "') is too old, " + TextOfVersion(cublaslt::kOldest) +
                  " or later is needed; update it, or set gemm_backend to "
                  "native");
  }
  if (!missing.empty()) {
    return Refuse("'" + file + "' is no cuBLASLt, it has no function " +
                  missing +
                  "; name the right file with MILLRACE_CUBLASLT, or set "
                  "gemm_backend to native");
  }
  return std::shared_ptr<const CublasLtLibrary>(std::move(cublaslt));
}

std::string CublasLtLibrary::VersionText() const {
  return TextOfVersion(version);
}

}  // namespace millrace::models
