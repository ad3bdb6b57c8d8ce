// How a weight lies once it is packed: all that decides this beside the tensor
// itself. A file may give one tensor to layers that want different forms, which
// must not find each other's.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "models/cpu/graph_kernels.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

struct PackedForm {
  enum class Kind : int32_t {
    kRows,         // panels of a matrix [outputs][terms]
    kColumns,      // panels of a matrix [terms][outputs]
    kConvolution,  // panels of each group, taps before channels
    kWinograd,     // panels of each of Winograd's products
    kVolume,       // the same for each tap in depth
    kKernelRows,   // panels of a transposed convolution, for each kernel row
    kPhases,       // panels of a transposed convolution, for each phase
    kRecurrent,    // panels of each direction
    kTapsFirst,    // [taps][channels]
    kRepeated,     // a bias, for each column of the kernel
    kBiasOfX,      // biases of a recurrent layer that meet the input,
    kBiasOfH,      // and the state
    kByteRows,     // panels of bytes, as their namesakes
    kByteColumns,
    kByteConvolution,
    kByteDepthwise,
    kBytePhases,
    kOneDnn,  // as oneDNN takes it
  };
  Kind kind;
  // Groups, strides, zero points, …: whatever decides, in any order that the
  // kind keeps.
  std::vector<int64_t> sizes = {};
  bool bf16 = false;  // for products of bf16

  std::strong_ordering operator<=>(const PackedForm&) const = default;
};

// Of weights on bytes: how the kernel moves, and what the bytes stand for.
std::vector<int64_t> ByteSizes(const Window& window, const Integers& integers);

}  // namespace millrace::models::graph
