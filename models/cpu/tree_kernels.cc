#include "models/cpu/tree_kernels.h"

namespace millrace::models {

WalkTrees WalkTreesOf(std::string_view dense_name) {
#if defined(__x86_64__)
#if !defined(MILLRACE_NO_TABLE_ABOVE_AVX2)
  if (dense_name == "avx512") return WalkTreesAvx512;
#endif
  if (dense_name == "avx2") return WalkTreesAvx2;
#endif
  (void)dense_name;
  return WalkTreesScalar;
}

}  // namespace millrace::models
