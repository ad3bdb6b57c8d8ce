// The int8 tables. Nothing here depends on an instruction set.

#include "models/cpu/arm_kernels.h"
#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/kernels/dense_int8/parts.h"

namespace millrace::models {
namespace {

template <class Isa>
constexpr Int8Table TableOf(const char* name, int32_t panel) {
  using Parts = Int8Parts<Isa>;
  using Depthwise = Int8DepthwiseParts<Isa>;
  return {.name = name,
          .panel = panel,
          .packed_bytes = Parts::PackedBytes,
          .pack = Parts::Pack,
          .conv_scratch_bytes = Parts::ConvScratchBytes,
          .conv = Parts::Conv,
          .depthwise = {Depthwise::Pieces, Depthwise::PackedBytes,
                        Depthwise::Pack, Depthwise::Ordered, Depthwise::Order,
                        Depthwise::ScratchBytes, Depthwise::Run},
          .max_pool = Parts::MaxPool,
          .affine = Parts::Affine,
          .mix = Parts::Mix,
          .quantise = Parts::Quantise,
          .dequantise = Parts::Dequantise,
          .lookup = Parts::Lookup,
          .column_sums = Parts::ColumnSums};
}

}  // namespace

const Int8Table* ScalarInt8() {
  static constexpr Int8Table kTable = TableOf<ScalarBytes>("scalar", 4);
  return &kTable;
}

#if defined(__x86_64__)
const Int8Table* Avx2Int8() {
  static constexpr Int8Table kTable = TableOf<Avx2Bytes>("avx2", 16);
  return &kTable;
}
#if !defined(MILLRACE_NO_TABLE_ABOVE_AVX2)
const Int8Table* AvxVnniInt8() {
  static constexpr Int8Table kTable = TableOf<AvxVnniBytes>("avxvnni", 16);
  return &kTable;
}
const Int8Table* Avx512VnniInt8() {
  static constexpr Int8Table kTable =
      TableOf<Avx512VnniBytes>("avx512vnni", 32);
  return &kTable;
}
const Int8Table* Avx512VbmiInt8() {
  static constexpr Int8Table kTable =
      TableOf<Avx512VbmiBytes>("avx512vbmi", 32);
  return &kTable;
}
const Int8Table* AmxInt8() {
  static constexpr Int8Table kTable = [] {
    Int8Table table = TableOf<Avx512VbmiBytes>("amx", 32);
    table.packed_bytes = Int8Parts<AmxBytes>::PackedBytes;
    table.pack = Int8Parts<AmxBytes>::Pack;
    table.conv_scratch_bytes = Int8Parts<AmxBytes>::ConvScratchBytes;
    table.conv = Int8Parts<AmxBytes>::Conv;
    return table;
  }();
  return &kTable;
}
#endif
#elif defined(__aarch64__)
const Int8Table* NeonInt8() {
  static constexpr Int8Table kTable = TableOf<NeonBytes>("neon", 16);
  return &kTable;
}
const Int8Table* NeonDotInt8() {
  static constexpr Int8Table kTable = TableOf<NeonDotBytes>("neondot", 16);
  return &kTable;
}
const Int8Table* NeonI8mmInt8() {
  static constexpr Int8Table kTable = TableOf<NeonI8mmBytes>("neoni8mm", 16);
  return &kTable;
}
#endif

}  // namespace millrace::models
