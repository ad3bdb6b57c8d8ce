// Elementwise work of graphs: fused programs, copies between strides, casts. A
// thread has one element, or four neighbours of a program.
#include "models/cuda/graph_byte_end.cuh"

namespace millrace::cuda {
namespace {

// One instruction for kSome values each.
template <int kSome>
__device__ __forceinline__ void Combine(const PointwiseInstruction& op,
                                        const float* x, const float* y,
                                        float* to) {
  const auto each = [&](auto of) {
    MILLRACE_UNROLL
    for (int i = 0; i < kSome; ++i) to[i] = of(x[i], y[i]);
  };
  switch (op.kind) {
    case Operation::kFunction:
      MILLRACE_NO_UNROLL  // the functions' code once
          for (int i = 0; i < kSome; ++i) to[i] = Apply(op.f, op.a, op.b, x[i]);
      return;
    case Operation::kAdd:
      return each([](float a, float b) { return a + b; });
    case Operation::kSub:
      return each([](float a, float b) { return a - b; });
    // As written: never fused with a sum, so that bits do not depend on the
    // program around it.
    case Operation::kMul:
      return each([](float a, float b) { return __fmul_rn(a, b); });
    case Operation::kDiv:
      return each([](float a, float b) { return a / b; });
    case Operation::kMin:
      return each([](float a, float b) { return GraphMin(a, b); });
    case Operation::kMax:
      return each([](float a, float b) { return GraphMax(a, b); });
  }
}

__device__ __forceinline__ float LoadOperand(const PointwiseArgs& args, int o,
                                             int64_t at) {
  const ValuesIn& x = args.x[o];
  if (x.format != GraphFormat::kU8) return LoadValue(x, at);
  const int32_t q = static_cast<const uint8_t*>(x.data)[at];
  return __fmul_rn(static_cast<float>(q - args.zeros[o]), args.scales[o]);
}

// kSome results that are neighbours along the last axis a thread: one or four.
template <int kSome>
__global__ void PointwiseKernel(PointwiseArgs args) {
  const int64_t first = ThreadNumber() * kSome;
  if (first >= args.count) return;
  int64_t at[kMostOperands] = {};
  int64_t left = first;
  for (int axis = args.rank - 1; axis >= 0; --axis) {
    const int64_t index = left % args.sizes[axis];
    left /= args.sizes[axis];
    for (int o = 0; o < args.num_operands; ++o) {
      at[o] += index * args.strides[o][axis];
    }
  }
  alignas(16) float registers[kMostOperands + kMostInstructions][kSome];
  for (int o = 0; o < args.num_operands; ++o) {
    const int64_t step = kSome == 1 ? 0 : args.strides[o][args.rank - 1];
    if constexpr (kSome == 4) {
      if (step == 1 && args.x[o].format != GraphFormat::kU8) {
        *reinterpret_cast<float4*>(registers[o]) = LoadFour(args.x[o], at[o]);
        continue;
      }
    }
    MILLRACE_UNROLL
    for (int i = 0; i < kSome; ++i) {
      registers[o][i] = LoadOperand(args, o, at[o] + i * step);
    }
  }
  int last = args.num_operands - 1;
  for (int op = 0; op < args.num_instructions; ++op) {
    const PointwiseInstruction& in = args.program[op];
    ++last;
    Combine<kSome>(in, registers[in.x], registers[in.y], registers[last]);
  }
  const float* result = registers[last];
  if (args.y.format == GraphFormat::kU8) {
    MILLRACE_UNROLL
    for (int i = 0; i < kSome; ++i) {
      static_cast<uint8_t*>(args.y.data)[first + i] =
          ToByte(result[i], args.y_scale, args.y_zero);
    }
  } else if constexpr (kSome == 4) {
    StoreFour(args.y, first, *reinterpret_cast<const float4*>(result));
  } else {
    StoreValue(args.y, first, result[0]);
  }
}

// Whether results come in fours that lie at multiples of their size, as those
// operands do that are read in fours.
bool IsInFours(const PointwiseArgs& args) {
  const int last = args.rank - 1;
  if (last < 0 || args.sizes[last] % 4 != 0 ||
      !StandsInFours(args.y.data, args.y.format)) {
    return false;
  }
  for (int o = 0; o < args.num_operands; ++o) {
    if (args.strides[o][last] != 1) continue;
    if (!StandsInFours(args.x[o].data, args.x[o].format)) return false;
    for (int axis = 0; axis < last; ++axis) {
      if (args.sizes[axis] > 1 && args.strides[o][axis] % 4 != 0) return false;
    }
  }
  return true;
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
  if (args.from.format == GraphFormat::kU8) {
    static_cast<uint8_t*>(args.to.data)[to] =
        static_cast<const uint8_t*>(args.from.data)[from];
  } else {
    StoreValue(args.to, to, LoadValue(args.from, from));
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
  if (IsInFours(args)) {
    return Launch(PointwiseKernel<4>, ByThread(args.count / 4), kGraphThreads,
                  0, stream, args);
  }
  return Launch(PointwiseKernel<1>, ByThread(args.count), kGraphThreads, 0,
                stream, args);
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
