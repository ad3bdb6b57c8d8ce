// Norms of rows. A thread holds four neighbouring values at a time and a row is
// read once; the order of sums depends on the row's width alone.
#include "models/cuda/product.cuh"
#include "models/cuda/round.cuh"

namespace millrace::cuda {
namespace {

constexpr int kMostThreads = 256;

// A block a row; a thread has fours `thread`, thread + threads of the block,
// ...
template <int kFours>
__global__ void __launch_bounds__(kMostThreads) NormKernel(NormArgs args) {
  float* shared = SharedMemory<float>();
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int64_t row = RowOf(args.row_ids, blockIdx.x);
  const float* x = args.x + row * args.pitch;
  const bool aligned = IsAligned(args.x, args.pitch) &&
                       IsAligned(args.weight, 0) && IsAligned(args.bias, 0) &&
                       IsAligned(args.out, args.out_pitch);
  const auto width = static_cast<float>(args.width);
  const auto at = [&](int i) {
    return 4 * static_cast<int>(threadIdx.x + i * blockDim.x);
  };
  float4 v[kFours];
  MILLRACE_UNROLL
  for (int i = 0; i < kFours; ++i)
    v[i] = LoadFour(x, at(i), args.width, aligned);
  float mean = 0;
  if (args.bias != nullptr) {
    float sum = 0;
    MILLRACE_UNROLL
    for (int i = 0; i < kFours; ++i)
      sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    mean = BlockSum(sum, shared) / width;
    shared += warps;
    MILLRACE_UNROLL
    for (int i = 0; i < kFours; ++i) {
      v[i].x = at(i) < args.width ? v[i].x - mean : 0.0f;
      v[i].y = at(i) + 1 < args.width ? v[i].y - mean : 0.0f;
      v[i].z = at(i) + 2 < args.width ? v[i].z - mean : 0.0f;
      v[i].w = at(i) + 3 < args.width ? v[i].w - mean : 0.0f;
    }
  }
  float squares = 0;
  MILLRACE_UNROLL
  for (int i = 0; i < kFours; ++i) {
    squares = fmaf(v[i].x, v[i].x, squares);
    squares = fmaf(v[i].y, v[i].y, squares);
    squares = fmaf(v[i].z, v[i].z, squares);
    squares = fmaf(v[i].w, v[i].w, squares);
  }
  squares = BlockSum(squares, shared);
  shared += warps;
  const float r = 1.0f / sqrtf(squares / width + args.eps);
  float* out = args.out == nullptr ? nullptr : args.out + row * args.out_pitch;
  MILLRACE_UNROLL
  for (int i = 0; i < kFours; ++i) {
    const float4 w = LoadFour(args.weight, at(i), args.width, aligned);
    v[i].x = __fmul_rn(__fmul_rn(v[i].x, r), w.x);
    v[i].y = __fmul_rn(__fmul_rn(v[i].y, r), w.y);
    v[i].z = __fmul_rn(__fmul_rn(v[i].z, r), w.z);
    v[i].w = __fmul_rn(__fmul_rn(v[i].w, r), w.w);
    if (args.bias != nullptr) {
      const float4 b = LoadFour(args.bias, at(i), args.width, aligned);
      v[i].x += b.x, v[i].y += b.y, v[i].z += b.z, v[i].w += b.w;
    }
    if (out == nullptr) continue;
    float4 y = v[i];
    if (args.adds) {
      const float4 before = LoadFour(out, at(i), args.width, aligned);
      y.x = fmaf(args.scale, y.x, before.x);
      y.y = fmaf(args.scale, y.y, before.y);
      y.z = fmaf(args.scale, y.z, before.z);
      y.w = fmaf(args.scale, y.w, before.w);
    }
    StoreFour(out, at(i), args.width, aligned, y);
  }

  const RoundedRows& to = args.rounded;
  if (to.format == InputFormat::kF32) return;
  if (to.format == InputFormat::kInt8) {
    MILLRACE_UNROLL
    for (int i = 0; i < kFours; ++i) StoreInt8(to, row, at(i), v[i]);
    return;
  }
  HalfScale scale;
  if (to.format == InputFormat::kF16) {
    float greatest = 0;
    MILLRACE_UNROLL
    for (int i = 0; i < kFours; ++i)
      greatest = fmaxf(greatest, GreatestOf(v[i]));
    scale = ScaleOfHalves(BlockMax(greatest, shared));
  }
  MILLRACE_UNROLL
  for (int i = 0; i < kFours; ++i) Store16Bit(to, row, at(i), v[i], scale);
}

}  // namespace

int NormRows(Stream stream, const NormArgs& args) {
  if (args.rows == 0) return 0;
  if (args.width > kMostNormWidth) return kInvalidValue;
  // With the zeros behind a row that is rounded.
  const int fours = static_cast<int>(CeilDiv(args.width, 8)) * 2;
  const int threads = min(kMostThreads, (fours + 31) / 32 * 32);
  const auto launch = [&]<int kFours>() {
    return Launch(
        NormKernel<kFours>, dim3(static_cast<unsigned>(args.rows)), threads,
        3 * static_cast<size_t>(threads / 32) * sizeof(float), stream, args);
  };
  const int held = (fours + threads - 1) / threads;
  if (held == 1) return launch.template operator()<1>();
  if (held == 2) return launch.template operator()<2>();
  if (held <= 4) return launch.template operator()<4>();
  if (held <= 8) return launch.template operator()<8>();
  if (held <= 16) return launch.template operator()<16>();
  return launch.template operator()<32>();
}

}  // namespace millrace::cuda
