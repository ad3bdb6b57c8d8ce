// What graphs do to whole rows, a block a row: softmax, normalisation,
// reduction. Sums go by threads, each over its values in order, then by the
// tree of a block: an order that the length of a row decides.
#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {
namespace {

constexpr int kRowThreads = 128;
constexpr int kRowWarps = kRowThreads / 32;

// Greatest over a block, in all threads; as BlockSum.
__device__ __forceinline__ float BlockMax(float value, float* shared) {
  value = WarpMax(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float most = shared[0];
  for (int i = 1; i < kRowWarps; ++i) most = fmaxf(most, shared[i]);
  return most;
}

// fmaxf passes over a NaN; a row that has one gets NaN by its sum.
template <GraphFormat kFormat>
__global__ void SoftmaxKernel(SoftmaxArgs args) {
  float* shared = SharedMemory<float>();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const int64_t begin =
      row / args.inner * args.size * args.inner + row % args.inner;
  const auto x = [&](int64_t i) {
    return LoadAs<kFormat>(args.x.data, begin + i * args.inner);
  };
  float most = -INFINITY;
  for (int64_t i = thread; i < args.size; i += kRowThreads) {
    most = fmaxf(most, x(i));
  }
  most = BlockMax(most, shared);
  float sum = 0;
  for (int64_t i = thread; i < args.size; i += kRowThreads) {
    sum += expf(x(i) - most);
  }
  sum = BlockSum(sum, shared + kRowWarps);
  const float log_sum = logf(sum);
  for (int64_t i = thread; i < args.size; i += kRowThreads) {
    const float value = x(i) - most;
    StoreValue(args.y, begin + i * args.inner,
               args.logarithm ? value - log_sum : expf(value) / sum);
  }
}

template <GraphFormat kFormat>
__global__ void NormalizeKernel(NormalizeArgs args) {
  float* shared = SharedMemory<float>();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t item = blockIdx.x / args.groups;
  const int64_t width = args.channels / args.groups;
  const int64_t first = blockIdx.x % args.groups * width;
  const int64_t begin = item * args.pixels * args.channels + first;
  const int64_t count = args.pixels * width;
  const auto place = [&](int64_t i) {
    return begin + i / width * args.channels + i % width;
  };
  const auto x = [&](int64_t i) {
    return LoadAs<kFormat>(args.x.data, place(i));
  };
  const auto size = static_cast<float>(count);
  float mean = 0;
  if (args.centred) {
    float sum = 0;
    for (int64_t i = thread; i < count; i += kRowThreads) sum += x(i);
    mean = BlockSum(sum, shared) / size;
  }
  float squares = 0;
  for (int64_t i = thread; i < count; i += kRowThreads) {
    const float value = x(i) - mean;
    squares = fmaf(value, value, squares);
  }
  squares = BlockSum(squares, shared + kRowWarps);
  const float r = 1.0f / sqrtf(squares / size + args.eps);
  for (int64_t i = thread; i < count; i += kRowThreads) {
    const int64_t channel = first + i % width;
    float value = __fmul_rn(x(i) - mean, r);
    if (args.weight != nullptr) value = __fmul_rn(value, args.weight[channel]);
    if (args.bias != nullptr) value += args.bias[channel];
    StoreValue(args.y, place(i), value);
  }
}

__device__ __forceinline__ float Extreme(bool is_max, float a, float b) {
  if (isnan(a) || isnan(b)) return a + b;
  return (is_max ? a > b : a < b) ? a : b;
}

__device__ __forceinline__ float WarpExtreme(bool is_max, float value) {
  for (int step = 16; step > 0; step /= 2) {
    value = Extreme(is_max, value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

__device__ __forceinline__ float Ended(const ReduceArgs& args, float value) {
  if (args.kind == ReduceOf::kMean) {
    return value / static_cast<float>(args.size);
  }
  return args.kind == ReduceOf::kL2 ? sqrtf(value) : value;
}

__device__ __forceinline__ bool IsExtreme(ReduceOf kind) {
  return kind == ReduceOf::kMax || kind == ReduceOf::kMin;
}

// A block for a row of neighbours.
template <GraphFormat kFormat>
__global__ void ReduceRowsKernel(ReduceArgs args) {
  float* shared = SharedMemory<float>();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = int64_t{blockIdx.x} * args.size;
  const auto x = [&](int64_t i) {
    return LoadAs<kFormat>(args.x.data, begin + i);
  };
  const bool is_max = args.kind == ReduceOf::kMax;
  if (IsExtreme(args.kind)) {
    float best = is_max ? -INFINITY : INFINITY;
    for (int64_t i = thread; i < args.size; i += kRowThreads) {
      best = Extreme(is_max, best, x(i));
    }
    best = WarpExtreme(is_max, best);
    if (thread % 32 == 0) shared[thread / 32] = best;
    __syncthreads();
    for (int i = 0; i < kRowWarps; ++i) best = Extreme(is_max, best, shared[i]);
    if (thread == 0) StoreValue(args.y, blockIdx.x, best);
    return;
  }
  const bool squares =
      args.kind == ReduceOf::kSumSquare || args.kind == ReduceOf::kL2;
  float sum = 0;
  for (int64_t i = thread; i < args.size; i += kRowThreads) {
    const float value = x(i);
    sum = squares ? fmaf(value, value, sum) : sum + value;
  }
  sum = BlockSum(sum, shared);
  if (thread == 0) StoreValue(args.y, blockIdx.x, Ended(args, sum));
}

// A thread for a column: pieces of 64 values, then the pieces.
template <GraphFormat kFormat>
__global__ void ReduceColumnsKernel(ReduceArgs args) {
  const int64_t at = ThreadNumber();
  if (at >= args.outer * args.inner) return;
  const int64_t first =
      at / args.inner * args.size * args.inner + at % args.inner;
  const bool is_max = args.kind == ReduceOf::kMax;
  const bool squares =
      args.kind == ReduceOf::kSumSquare || args.kind == ReduceOf::kL2;
  float best = is_max ? -INFINITY : INFINITY;
  float total = 0;
  float sum = 0;
  for (int64_t i = 0; i < args.size; ++i) {
    const float value = LoadAs<kFormat>(args.x.data, first + i * args.inner);
    if (IsExtreme(args.kind)) {
      best = Extreme(is_max, best, value);
      continue;
    }
    sum = squares ? fmaf(value, value, sum) : sum + value;
    if (i % 64 == 63) {
      total += sum;
      sum = 0;
    }
  }
  StoreValue(args.y, at,
             IsExtreme(args.kind) ? best : Ended(args, total + sum));
}

}  // namespace

int GraphSoftmax(Stream stream, const SoftmaxArgs& args) {
  const int64_t rows = args.outer * args.inner;
  if (rows == 0 || args.size == 0) return 0;
  return WithFormat(args.x.format, [&]<GraphFormat kFormat>() {
    return Launch(SoftmaxKernel<kFormat>, dim3(static_cast<unsigned>(rows)),
                  kRowThreads, 2 * kRowWarps * sizeof(float), stream, args);
  });
}

int GraphNormalize(Stream stream, const NormalizeArgs& args) {
  const int64_t rows = args.items * args.groups;
  if (rows == 0 || args.pixels * args.channels == 0) return 0;
  return WithFormat(args.x.format, [&]<GraphFormat kFormat>() {
    return Launch(NormalizeKernel<kFormat>, dim3(static_cast<unsigned>(rows)),
                  kRowThreads, 2 * kRowWarps * sizeof(float), stream, args);
  });
}

int GraphReduce(Stream stream, const ReduceArgs& args) {
  const int64_t rows = args.outer * args.inner;
  if (rows == 0) return 0;
  return WithFormat(args.x.format, [&]<GraphFormat kFormat>() {
    if (args.inner == 1) {
      return Launch(ReduceRowsKernel<kFormat>,
                    dim3(static_cast<unsigned>(rows)), kRowThreads,
                    kRowWarps * sizeof(float), stream, args);
    }
    return Launch(ReduceColumnsKernel<kFormat>, ByThread(rows), kGraphThreads,
                  0, stream, args);
  });
}

}  // namespace millrace::cuda
