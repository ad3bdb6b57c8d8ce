#include "models/cpu/pool_rows.h"

namespace millrace::models {

PoolRows PoolRowsOf(std::string_view dense_name) {
#if defined(__x86_64__)
#if !defined(MILLRACE_NO_TABLE_ABOVE_AVX2)
  if (dense_name == "avx512") return PoolRowsAvx512;
#endif
  if (dense_name == "avx2") return PoolRowsAvx2;
#endif
  (void)dense_name;
  return PoolRowsScalar;
}

}  // namespace millrace::models
