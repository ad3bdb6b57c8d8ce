// What models/gpu/cublaslt_library.h says of cuBLASLt, held against NVIDIA's
// header. Built where the CUDA toolkit is; it fails while it is compiled.
#include "models/gpu/cublaslt_library.h"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

namespace millrace::models::cublaslt {
namespace {

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kF32 == CUDA_R_32F && kF16 == CUDA_R_16F && kBF16 == CUDA_R_16BF);
static_assert(kComputeF32 == CUBLAS_COMPUTE_32F && kTransposed == CUBLAS_OP_T);
static_assert(kComputeTf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(kNoReduction == CUBLASLT_REDUCTION_SCHEME_NONE);
static_assert(kDescTransposesA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kPrefMaxWorkspaceBytes ==
              CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kPrefReductionSchemes ==
              CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(kPrefAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kPrefAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kPrefAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kPrefAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(kConfigSplits == CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
static_assert(kConfigReduction == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);

static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t));
using Theirs = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(HeuristicResult) == sizeof(Theirs));
static_assert(offsetof(HeuristicResult, workspace_bytes) ==
              offsetof(Theirs, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(Theirs, state));
static_assert(offsetof(HeuristicResult, waves) == offsetof(Theirs, wavesCount));
static_assert(sizeof(cublasStatus_t) == sizeof(int));

// How many arguments each has, and the size of each: those are passed alike.
template <typename Ours, typename Other>
struct IsAlike : std::false_type {};
template <typename A, typename... As, typename B, typename... Bs>
requires(sizeof...(As) ==
         sizeof...(Bs)) struct IsAlike<A (*)(As...), B (*)(Bs...)>
    : std::bool_constant<sizeof(A) == sizeof(B) &&
                         ((sizeof(As) == sizeof(Bs) &&
                           std::is_pointer_v<As> ==
                               std::is_pointer_v<Bs>)&&...)> {
};

#define EXPECT_ALIKE(member, theirs) \
  static_assert(                     \
      IsAlike<decltype(CublasLtLibrary::member), decltype(&theirs)>::value)
EXPECT_ALIKE(get_version, cublasLtGetVersion);
EXPECT_ALIKE(get_status_string, cublasLtGetStatusString);
EXPECT_ALIKE(create, cublasLtCreate);
EXPECT_ALIKE(destroy, cublasLtDestroy);
EXPECT_ALIKE(desc_create, cublasLtMatmulDescCreate);
EXPECT_ALIKE(desc_destroy, cublasLtMatmulDescDestroy);
EXPECT_ALIKE(desc_set, cublasLtMatmulDescSetAttribute);
EXPECT_ALIKE(layout_create, cublasLtMatrixLayoutCreate);
EXPECT_ALIKE(layout_destroy, cublasLtMatrixLayoutDestroy);
EXPECT_ALIKE(preference_create, cublasLtMatmulPreferenceCreate);
EXPECT_ALIKE(preference_destroy, cublasLtMatmulPreferenceDestroy);
EXPECT_ALIKE(preference_set, cublasLtMatmulPreferenceSetAttribute);
EXPECT_ALIKE(get_heuristic, cublasLtMatmulAlgoGetHeuristic);
EXPECT_ALIKE(algo_check, cublasLtMatmulAlgoCheck);
EXPECT_ALIKE(algo_config_get, cublasLtMatmulAlgoConfigGetAttribute);
EXPECT_ALIKE(matmul, cublasLtMatmul);
#undef EXPECT_ALIKE

TEST(CublasLtHeader, SaysTheSame) { SUCCEED() << "or this does not compile"; }

}  // namespace
}  // namespace millrace::models::cublaslt
