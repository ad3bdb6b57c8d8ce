// Arrays of bytes: quantising, by ranges that are known or measured, and back;
// tables; pools of images.
#include "models/cuda/graph_byte_end.cuh"
#include "models/cuda/graph_window.cuh"

namespace millrace::cuda {
namespace {

// Four values a thread.
constexpr int kFour = 4;
__device__ __forceinline__ int CountFrom(int64_t first, int64_t count) {
  return static_cast<int>(Min64(kFour, count - first));
}
template <class Args>
int LaunchByFour(void (*kernel)(Args), Stream stream, const Args& args) {
  if (args.count == 0) return 0;
  return Launch(kernel, ByThread((args.count + kFour - 1) / kFour),
                kGraphThreads, 0, stream, args);
}

__device__ __forceinline__ void QuantizeFour(const float* x, int64_t count,
                                             float scale, int32_t zero,
                                             uint8_t* y) {
  const int64_t first = ThreadNumber() * kFour;
  if (first >= count) return;
  const int some = CountFrom(first, count);
  const auto values = LoadSome<kFour>(x + first, some, some == kFour);
  Neighbours<uint8_t, kFour> bytes;
  MILLRACE_UNROLL
  for (int i = 0; i < kFour; ++i) {
    bytes.at[i] = ToByte(values.at[i], scale, zero);
  }
  StoreSome(y + first, bytes, some, some == kFour);
}

__global__ void QuantizeKernel(GraphQuantizeArgs args) {
  QuantizeFour(args.x, args.count, args.scale, args.zero, args.y);
}

__global__ void DequantizeKernel(GraphDequantizeArgs args) {
  const int64_t first = ThreadNumber() * kFour;
  if (first >= args.count) return;
  const int some = CountFrom(first, args.count);
  const auto bytes = LoadSome<kFour>(args.x + first, some, some == kFour);
  const bool measured = args.x_scale != nullptr;
  const float scale = measured ? *args.x_scale : args.scale;
  const int32_t zero = measured ? int32_t{*args.x_zero} : args.zero;
  Neighbours<float, kFour> values;
  MILLRACE_UNROLL
  for (int i = 0; i < kFour; ++i) {
    values.at[i] =
        __fmul_rn(static_cast<float>(int32_t{bytes.at[i]} - zero), scale);
  }
  StoreSome(args.y + first, values, some, some == kFour);
}

__global__ void LookupKernel(GraphLookupArgs args) {
  const int64_t first = ThreadNumber() * kFour;
  if (first >= args.count) return;
  const int some = CountFrom(first, args.count);
  auto bytes = LoadSome<kFour>(args.x + first, some, some == kFour);
  MILLRACE_UNROLL
  for (int i = 0; i < kFour; ++i) bytes.at[i] = args.table[bytes.at[i]];
  StoreSome(args.y + first, bytes, some, some == kFour);
}

// ---- ranges ----
struct Range {
  float low;
  float high;
};
// Of x and 0; a NaN counts nothing. The extremes of floats have no order.
__device__ __forceinline__ Range Wider(Range a, Range b) {
  return {GraphMin(b.low, a.low), GraphMax(b.high, a.high)};
}
// Of all threads of a block, in all of them.
__device__ __forceinline__ Range BlockRange(Range mine, float* shared) {
  const float high = BlockMax(mine.high, shared);
  __syncthreads();  // `shared` again
  const float low = -BlockMax(-mine.low, shared);
  __syncthreads();
  return {low, high};
}

struct RangeArgs {
  int64_t count;
  const float* x;
  Range* found;  // of each block; may be the result's memory
  int32_t num_found;
  float* scale;
  uint8_t* zero;
};
__global__ void RangesKernel(RangeArgs args) {
  Range range = {0, 0};
  const int64_t step = int64_t{gridDim.x} * kGraphThreads;
  MILLRACE_UNROLL_BY(4)
  for (int64_t i = ThreadNumber(); i < args.count; i += step) {
    range = Wider(range, {args.x[i], args.x[i]});
  }
  range = BlockRange(range, SharedMemory<float>());
  if (threadIdx.x == 0) args.found[blockIdx.x] = range;
}

// One block: ranges of others, or of x where there are none.
__global__ void ScaleKernel(RangeArgs args) {
  Range range = {0, 0};
  const int64_t count = args.num_found > 0 ? args.num_found : args.count;
  for (int64_t i = threadIdx.x; i < count; i += kGraphThreads) {
    range = Wider(range, args.num_found > 0 ? args.found[i]
                                            : Range{args.x[i], args.x[i]});
  }
  range = BlockRange(range, SharedMemory<float>());
  if (threadIdx.x != 0) return;
  const float width = range.high == range.low ? 1.0f : range.high - range.low;
  const float scale = width / 255.0f;
  const float zero = GraphMin(255.0f, GraphMax(0.0f, 0.0f - range.low / scale));
  *args.scale = scale;
  *args.zero = static_cast<uint8_t>(rintf(zero));
}

__global__ void QuantizeMeasuredKernel(GraphMeasureArgs args) {
  QuantizeFour(args.x, args.count, 1.0f / *args.scale, *args.zero, args.y);
}

// ---- pools ----
__global__ void MaxPoolKernel(GraphBytePoolArgs args) {
  const GraphWindow& w = args.window;
  const int64_t number = ThreadNumber();
  if (number >= PixelsOut(args) * args.channels) return;
  const Pixel at = PixelAt(w, number / args.channels);
  const uint8_t* x = args.x + number % args.channels;
  uint8_t best = 0;
  TapWalk walk = {};
  for (; walk.IsThere(w); walk.Advance(w, 1, 1)) {
    const int read = ReadAt(w, false, at, walk.tap);
    if (read < 0) continue;
    const uint8_t value = x[(at.image + read) * args.channels];
    best = value > best ? value : best;
  }
  args.y[number] = best;
}

// A block has 32 channels of an image; its warps share the pixels.
constexpr int kMeanChannels = 32;
constexpr int kMeanWarps = kGraphThreads / kMeanChannels;
__global__ void MeanKernel(GraphByteMeanArgs args) {
  auto* sums = SharedMemory<int32_t>();  // [kMeanWarps][kMeanChannels]
  const int lane = static_cast<int>(threadIdx.x) % kMeanChannels;
  const int warp = static_cast<int>(threadIdx.x) / kMeanChannels;
  const int64_t blocks = (args.channels + kMeanChannels - 1) / kMeanChannels;
  const int64_t image = blockIdx.x / blocks;
  const int64_t channel = blockIdx.x % blocks * kMeanChannels + lane;
  const uint8_t* x = args.x + image * args.pixels * args.channels + channel;
  int32_t sum = 0;
  if (channel < args.channels) {
    MILLRACE_UNROLL_BY(4)
    for (int64_t i = warp; i < args.pixels; i += kMeanWarps) {
      sum += x[i * args.channels];
    }
  }
  sums[warp * kMeanChannels + lane] = sum;
  __syncthreads();
  if (warp != 0 || channel >= args.channels) return;
  sum = 0;
  for (int i = 0; i < kMeanWarps; ++i) sum += sums[i * kMeanChannels + lane];
  const auto pixels = static_cast<double>(args.pixels);
  const double by = double{args.x_scale} / pixels;
  const double centred = sum - pixels * args.x_zero;
  const auto mean = static_cast<float>(centred * by);
  const int64_t at = image * args.channels + channel;
  if (args.y == nullptr) {
    args.y_f32[at] = mean;
  } else {
    args.y[at] = ToByte(mean, args.y_scale, args.y_zero);
  }
}

}  // namespace

int GraphQuantize(Stream stream, const GraphQuantizeArgs& args) {
  return LaunchByFour(QuantizeKernel, stream, args);
}
int GraphDequantize(Stream stream, const GraphDequantizeArgs& args) {
  return LaunchByFour(DequantizeKernel, stream, args);
}
int GraphLookup(Stream stream, const GraphLookupArgs& args) {
  return LaunchByFour(LookupKernel, stream, args);
}

int GraphMeasure(Stream stream, const GraphMeasureArgs& args) {
  if (args.count == 0) return 0;
  // So many that what they find has room in the bytes of the result.
  constexpr int64_t kOfBlock = 4096;
  constexpr int64_t kMostBlocks = 264;
  constexpr size_t kShared = kGraphThreads / 32 * sizeof(float);
  const int64_t blocks =
      args.count / kOfBlock < kMostBlocks ? args.count / kOfBlock : kMostBlocks;
  RangeArgs ranges = {.count = args.count,
                      .x = args.x,
                      .found = reinterpret_cast<Range*>(args.y),
                      .num_found = 0,
                      .scale = args.scale,
                      .zero = args.zero};
  if (blocks > 1) {
    ranges.num_found = static_cast<int32_t>(blocks);
    const int error = Launch(RangesKernel, dim3(static_cast<unsigned>(blocks)),
                             kGraphThreads, kShared, stream, ranges);
    if (error != 0) return error;
  }
  const int error =
      Launch(ScaleKernel, dim3(1), kGraphThreads, kShared, stream, ranges);
  if (error != 0) return error;
  return LaunchByFour(QuantizeMeasuredKernel, stream, args);
}

int GraphByteMaxPool(Stream stream, const GraphBytePoolArgs& args) {
  const GraphWindow& w = args.window;
  const int64_t count =
      args.batch * w.out[0] * w.out[1] * w.out[2] * args.channels;
  if (count == 0) return 0;
  return Launch(MaxPoolKernel, ByThread(count), kGraphThreads, 0, stream, args);
}

int GraphByteMean(Stream stream, const GraphByteMeanArgs& args) {
  const int64_t blocks =
      args.batch * ((args.channels + kMeanChannels - 1) / kMeanChannels);
  if (blocks == 0) return 0;
  return Launch(MeanKernel, dim3(static_cast<unsigned>(blocks)), kGraphThreads,
                kGraphThreads * sizeof(int32_t), stream, args);
}

}  // namespace millrace::cuda
