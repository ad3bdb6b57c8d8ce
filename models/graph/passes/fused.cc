#include "models/graph/passes/fused.h"

namespace millrace::models::graph::fused {

const OpDef kConv = {.name = "fused.Conv"};
const OpDef kVolumeConv = {.name = "fused.VolumeConv"};
const OpDef kConvTranspose = {.name = "fused.ConvTranspose"};
const OpDef kPool = {.name = "fused.Pool"};
const OpDef kGroupNorm = {.name = "fused.GroupNorm"};
const OpDef kResize = {.name = "fused.Resize"};
const OpDef kLinear = {.name = "fused.Linear"};
const OpDef kMatMul = {.name = "fused.MatMul"};
const OpDef kAttention = {.name = "fused.Attention"};
const OpDef kPointwise = {.name = "fused.Pointwise"};
const OpDef kByteConv = {.name = "fused.ByteConv"};
const OpDef kByteConvTranspose = {.name = "fused.ByteConvTranspose"};
const OpDef kByteLinear = {.name = "fused.ByteLinear"};
const OpDef kBytePool = {.name = "fused.BytePool"};
const OpDef kLookup = {.name = "fused.Lookup"};
const OpDef kBytePointwise = {.name = "fused.BytePointwise"};

}  // namespace millrace::models::graph::fused
