// Elementwise work of graphs, a thread an element: fused programs, copies
// between strides, casts.
#include "models/cuda/graph_byte_end.cuh"

namespace millrace::cuda {
namespace {

__device__ float Combine(const PointwiseInstruction& op, float x, float y) {
  switch (op.kind) {
    case Operation::kFunction:
      return Apply(op.f, op.a, op.b, x);
    case Operation::kAdd:
      return x + y;
    case Operation::kSub:
      return x - y;
    // As written: never fused with a sum, so that bits do not depend on the
    // program around it.
    case Operation::kMul:
      return __fmul_rn(x, y);
    case Operation::kDiv:
      return x / y;
    case Operation::kMin:
      return GraphMin(x, y);
    case Operation::kMax:
      return GraphMax(x, y);
  }
  return x;
}

__global__ void PointwiseKernel(PointwiseArgs args) {
  const int64_t i = ThreadNumber();
  if (i >= args.count) return;
  int64_t at[kMostOperands] = {};
  int64_t left = i;
  for (int axis = args.rank - 1; axis >= 0; --axis) {
    const int64_t index = left % args.sizes[axis];
    left /= args.sizes[axis];
    for (int o = 0; o < args.num_operands; ++o) {
      at[o] += index * args.strides[o][axis];
    }
  }
  float registers[kMostOperands + kMostInstructions];
  for (int o = 0; o < args.num_operands; ++o) {
    if (args.scales[o] == 0) {
      registers[o] = static_cast<const float*>(args.x[o])[at[o]];
    } else {
      const int32_t q = static_cast<const uint8_t*>(args.x[o])[at[o]];
      registers[o] =
          __fmul_rn(static_cast<float>(q - args.zeros[o]), args.scales[o]);
    }
  }
  int last = args.num_operands - 1;
  for (int op = 0; op < args.num_instructions; ++op) {
    const PointwiseInstruction& in = args.program[op];
    registers[++last] = Combine(in, registers[in.x], registers[in.y]);
  }
  if (args.y_scale == 0) {
    static_cast<float*>(args.y)[i] = registers[last];
  } else {
    static_cast<uint8_t*>(args.y)[i] =
        ToByte(registers[last], args.y_scale, args.y_zero);
  }
}

__global__ void CopyStridedKernel(CopyStridedArgs args) {
  int64_t left = ThreadNumber();
  if (left >= args.count) return;
  int64_t from = 0;
  int64_t to = 0;
  for (int axis = args.rank - 1; axis >= 0; --axis) {
    const int64_t index = left % args.sizes[axis];
    left /= args.sizes[axis];
    from += index * args.from_strides[axis];
    to += index * args.to_strides[axis];
  }
  if (args.bytes) {
    static_cast<uint8_t*>(args.to)[to] =
        static_cast<const uint8_t*>(args.from)[from];
  } else {
    static_cast<float*>(args.to)[to] =
        static_cast<const float*>(args.from)[from];
  }
}

__global__ void CastKernel(CastArgs args) {
  const int64_t i = ThreadNumber();
  if (i >= args.count) return;
  switch (args.type) {
    case CastFrom::kI64:
      args.to[i] =
          static_cast<float>(static_cast<const int64_t*>(args.from)[i]);
      return;
    case CastFrom::kI32:
      args.to[i] =
          static_cast<float>(static_cast<const int32_t*>(args.from)[i]);
      return;
    case CastFrom::kU8:
      args.to[i] = static_cast<const uint8_t*>(args.from)[i];
      return;
    case CastFrom::kBool:
      args.to[i] = static_cast<const uint8_t*>(args.from)[i] != 0 ? 1.0f : 0.0f;
      return;
  }
}

}  // namespace

int GraphPointwise(Stream stream, const PointwiseArgs& args) {
  if (args.count == 0) return 0;
  return Launch(PointwiseKernel, ByThread(args.count), kGraphThreads, 0, stream,
                args);
}

int GraphCopyStrided(Stream stream, const CopyStridedArgs& args) {
  if (args.count == 0) return 0;
  return Launch(CopyStridedKernel, ByThread(args.count), kGraphThreads, 0,
                stream, args);
}

int GraphCast(Stream stream, const CastArgs& args) {
  if (args.count == 0) return 0;
  return Launch(CastKernel, ByThread(args.count), kGraphThreads, 0, stream,
                args);
}

}  // namespace millrace::cuda
