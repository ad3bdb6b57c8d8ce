// cuBLASLt, NVIDIA's library of matrix products: the functions of it that
// products of prompts and of graphs use. It is opened when a model asks for it,
// so that a server without it lacks nothing. Declared here after cuBLASLt's
// public interface, so that no header of it is needed to build; a test holds
// what stands here against that header where the CUDA toolkit is.
//
//   ASSIGN_OR_RETURN(const auto library, CublasLtLibrary::Open());
//   const int error = library->create(&handle);
//   if (error != cublaslt::kSuccess) return Internal(library->TextOf(error));
//
// Immutable once opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "config/base/status.h"

namespace millrace::models {

namespace cublaslt {

using Handle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using Preference = void*;

// cublasLtMatmulAlgo_t: a kernel and how it is to be used.
struct Algo {
  uint64_t data[8];
};
// cublasLtMatmulHeuristicResult_t
struct HeuristicResult {
  Algo algo;
  size_t workspace_bytes;
  int state;  // kSuccess: the others are valid
  float waves;
  int reserved[4];
};

// Numbers of its enumerations.
inline constexpr int kSuccess = 0;
inline constexpr int kF32 = 0;           // CUDA_R_32F
inline constexpr int kF16 = 2;           // CUDA_R_16F
inline constexpr int kBF16 = 14;         // CUDA_R_16BF
inline constexpr int kComputeF32 = 68;   // CUBLAS_COMPUTE_32F
inline constexpr int kComputeTf32 = 77;  // CUBLAS_COMPUTE_32F_FAST_TF32
inline constexpr int32_t kTransposed = 1;
inline constexpr uint32_t kNoReduction = 0;
// CUBLASLT_MATMUL_DESC_…; int32_t.
inline constexpr int kDescTransposesA = 3;
// CUBLASLT_MATMUL_PREF_…; uint64_t, the others uint32_t.
inline constexpr int kPrefMaxWorkspaceBytes = 1;
inline constexpr int kPrefReductionSchemes = 3;
inline constexpr int kPrefAlignmentA = 5;
inline constexpr int kPrefAlignmentB = 6;
inline constexpr int kPrefAlignmentC = 7;
inline constexpr int kPrefAlignmentD = 8;
// CUBLASLT_ALGO_CONFIG_…; int32_t and uint32_t.
inline constexpr int kConfigSplits = 2;
inline constexpr int kConfigReduction = 3;

// major * 10000 + minor * 100 + patch. Older ones were not looked at.
inline constexpr size_t kOldest = 120000;

}  // namespace cublaslt

struct CublasLtLibrary {
  // The file that MILLRACE_CUBLASLT names, else libcublasLt.so.13, else
  // libcublasLt.so.12. It stays open. FAILED_PRECONDITION says in one sentence
  // why it cannot be used.
  static StatusOr<std::shared_ptr<const CublasLtLibrary>> Open();

  // What went wrong, for people.
  std::string TextOf(int status) const { return get_status_string(status); }
  std::string VersionText() const;  // "13.1.0"

  size_t version = 0;
  // As in NVIDIA's manual; each returns kSuccess or the number of an error.
  size_t (*get_version)() = nullptr;
  const char* (*get_status_string)(int) = nullptr;
  int (*create)(cublaslt::Handle*) = nullptr;
  int (*destroy)(cublaslt::Handle) = nullptr;
  int (*desc_create)(cublaslt::MatmulDesc*, int compute_type,
                     int scale_type) = nullptr;
  int (*desc_destroy)(cublaslt::MatmulDesc) = nullptr;
  int (*desc_set)(cublaslt::MatmulDesc, int attribute, const void*,
                  size_t bytes) = nullptr;
  // By columns, `pitch` values from one to the next.
  int (*layout_create)(cublaslt::MatrixLayout*, int type, uint64_t rows,
                       uint64_t columns, int64_t pitch) = nullptr;
  int (*layout_destroy)(cublaslt::MatrixLayout) = nullptr;
  int (*preference_create)(cublaslt::Preference*) = nullptr;
  int (*preference_destroy)(cublaslt::Preference) = nullptr;
  int (*preference_set)(cublaslt::Preference, int attribute, const void*,
                        size_t bytes) = nullptr;
  int (*get_heuristic)(cublaslt::Handle, cublaslt::MatmulDesc,
                       cublaslt::MatrixLayout a, cublaslt::MatrixLayout b,
                       cublaslt::MatrixLayout c, cublaslt::MatrixLayout d,
                       cublaslt::Preference, int most,
                       cublaslt::HeuristicResult*, int* count) = nullptr;
  int (*algo_check)(cublaslt::Handle, cublaslt::MatmulDesc,
                    cublaslt::MatrixLayout a, cublaslt::MatrixLayout b,
                    cublaslt::MatrixLayout c, cublaslt::MatrixLayout d,
                    const cublaslt::Algo*,
                    cublaslt::HeuristicResult*) = nullptr;
  int (*algo_config_get)(const cublaslt::Algo*, int attribute, void*,
                         size_t bytes, size_t* written) = nullptr;
  // D = alpha * op(A) * B + beta * C, alpha and beta f32 on the host.
  int (*matmul)(cublaslt::Handle, cublaslt::MatmulDesc, const void* alpha,
                const void* a, cublaslt::MatrixLayout, const void* b,
                cublaslt::MatrixLayout, const void* beta, const void* c,
                cublaslt::MatrixLayout, void* d, cublaslt::MatrixLayout,
                const cublaslt::Algo*, void* workspace, size_t workspace_bytes,
                void* stream) = nullptr;
};

}  // namespace millrace::models
