// The int8 kernels with the VNNI of 512 bits and permutations of bytes.

#include "models/cpu/kernels/avx512vbmi/lookup.h"
#include "models/cpu/kernels/avx512vnni/int8_vec16.h"
#include "models/cpu/kernels/dense_int8/define.h"

namespace millrace::models {

MILLRACE_DEFINE_INT8(Avx512VbmiBytes, Int8Vec16<ByBytes>)

}  // namespace millrace::models
