// Rows of activations as the products on tensor cores and on int8 read them. A
// row's bits depend on that row alone.
#include "models/cuda/product.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 128;

// A block a row.
__global__ void __launch_bounds__(kThreads) Round16Kernel(RoundArgs args) {
  const int64_t row = RowOf(args.row_ids, blockIdx.x);
  const float* x = args.x + row * args.pitch;
  auto* out = reinterpret_cast<uint16_t*>(args.out + row * args.out_bytes);
  const int thread = static_cast<int>(threadIdx.x);
  const bool half = args.format == InputFormat::kF16;
  float scale = 1;
  float inverse = 1;
  if (half) {
    float greatest = 0;
    for (int i = thread; i < args.inputs; i += kThreads) {
      greatest = fmaxf(greatest, fabsf(x[i]));
    }
    greatest = BlockMax(greatest, SharedMemory<float>());
    // The exponent as f32 stores it. Out of these bounds x is 0 in f16, or is
    // infinite, which it stays.
    const int exponent = static_cast<int>(BitsOfFloat(greatest) >> 23);
    if (exponent > 40 && exponent < 255) {
      scale = FloatOfBits(static_cast<uint32_t>(exponent - 13) << 23);
      inverse = FloatOfBits(static_cast<uint32_t>(254 - exponent + 13) << 23);
    }
  }
  for (int i = thread; i < args.inputs; i += kThreads) {
    out[i] = half ? ToHalf(x[i] * inverse) : ToBf16(x[i]);
  }
  if (thread == 0) {
    *reinterpret_cast<float*>(out + args.inputs) = scale;
  }
}

// A warp for each 32 values: the greatest becomes 127, as on the CPU.
__global__ void __launch_bounds__(kThreads) RoundInt8Kernel(RoundArgs args) {
  const int64_t row = RowOf(args.row_ids, blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const float* x = args.x + row * args.pitch;
  std::byte* out = args.out + row * args.out_bytes;
  for (int block = warp; block < args.inputs / 32; block += kThreads / 32) {
    const float value = x[32 * block + lane];
    float d = WarpMax(fabsf(value)) / 127.0f;
    const bool zero = d < 0x1p-126f;
    const float inverse = zero ? 0.0f : 1.0f / d;
    if (zero) d = 0.0f;
    const float scaled = rintf(value * inverse);
    const int q = static_cast<int>(fminf(fmaxf(scaled, -127.0f), 127.0f));
    const int place = lane / 8 * 8 + lane % 2 * 4 + lane % 8 / 2;
    reinterpret_cast<int8_t*>(out)[32 * block + place] = static_cast<int8_t>(q);
    int sum = q;  // of 16 lanes
    for (int step = 8; step > 0; step /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    const int upper = __shfl_sync(kAllLanes, sum, 16);
    if (lane == 0) {
      const uint2 scale = {BitsOfFloat(d),
                           (static_cast<uint32_t>(sum) & 0xffff) |
                               static_cast<uint32_t>(upper) << 16};
      reinterpret_cast<uint2*>(out + args.inputs)[block] = scale;
    }
  }
}

}  // namespace

int RoundRows(Stream stream, const RoundArgs& args) {
  if (args.rows == 0) return 0;
  const bool int8 = args.format == InputFormat::kInt8;
  return Launch(int8 ? RoundInt8Kernel : Round16Kernel,
                dim3(static_cast<unsigned>(args.rows)), kThreads,
                kThreads / 32 * sizeof(float), stream, args);
}

}  // namespace millrace::cuda
