// What is done to rows of activations between two products: embedding, norms,
// activation, gathering, adding, and copies of KV pages.
#include "models/cuda/weights.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 128;

template <WeightFormat kFormat>
__device__ __forceinline__ void TableUnit(const Weights& table, int64_t row,
                                          int unit, float w[8]) {
  LoadUnit<kFormat>(table.data + row * table.row_bytes, table.inputs, unit, w);
}

template <WeightFormat kFormat, WeightFormat kPositions>
__global__ void EmbedKernel(EmbedArgs args) {
  const int64_t row = blockIdx.x;
  float* x = args.x + row * args.pitch;
  for (int unit = static_cast<int>(threadIdx.x); unit < args.table.inputs / 8;
       unit += kThreads) {
    float w[8];
    TableUnit<kFormat>(args.table, args.tokens[row], unit, w);
    for (int i = 0; i < 8; ++i) w[i] *= args.scale;
    if (args.positions.data != nullptr) {
      float p[8];
      TableUnit<kPositions>(args.positions, args.row_positions[row], unit, p);
      for (int i = 0; i < 8; ++i) w[i] += p[i];
    }
    for (int i = 0; i < 8; ++i) x[8 * unit + i] = w[i];
  }
}

__global__ void NormKernel(NormArgs args) {
  float* shared = SharedMemory<float>();
  const int64_t row = blockIdx.x;
  const float* x = args.x + row * args.pitch;
  float* out = args.out + row * args.out_pitch;
  const int thread = static_cast<int>(threadIdx.x);
  const auto width = static_cast<float>(args.width);
  float mean = 0;
  if (args.bias != nullptr) {
    float sum = 0;
    for (int i = thread; i < args.width; i += kThreads) sum += x[i];
    mean = BlockSum(sum, shared) / width;
    shared += kThreads / 32;
  }
  float squares = 0;
  for (int i = thread; i < args.width; i += kThreads) {
    squares = fmaf(x[i] - mean, x[i] - mean, squares);
  }
  // The barrier inside also ends all reading of x before the first write.
  squares = BlockSum(squares, shared);
  const float r = 1.0f / sqrtf(squares / width + args.eps);
  for (int i = thread; i < args.width; i += kThreads) {
    const float value = (x[i] - mean) * r * args.weight[i];
    out[i] = args.bias != nullptr ? value + args.bias[i] : value;
  }
}

// GELU in its tanh form (Hendrycks and Gimpel 2016).
__device__ __forceinline__ float Gelu(float x) {
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}
__device__ __forceinline__ float Silu(float x) { return x / (1.0f + expf(-x)); }

__global__ void ActivateKernel(ActivateArgs args) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= args.width) return;
  const float* x = args.x + row * args.pitch;
  const float value = args.gelu ? Gelu(x[i]) : Silu(x[i]);
  args.out[row * args.out_pitch + i] =
      args.gated ? value * x[args.width + i] : value;
}

__global__ void GatherKernel(GatherArgs args) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= args.width) return;
  args.to[row * args.pitch + i] = args.from[args.rows[row] * args.pitch + i];
}

__global__ void AddKernel(AddArgs args) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= args.width) return;
  float* x = args.x + row * args.pitch + i;
  *x = fmaf(args.scale, args.y[row * args.pitch + i], *x);
}

__global__ void CopyPagesKernel(CopyPagesArgs args) {
  const int32_t* pair = args.copies + 2 * blockIdx.y;
  const auto* from =
      reinterpret_cast<const float4*>(args.base + pair[0] * args.page_bytes);
  auto* to = reinterpret_cast<float4*>(args.base + pair[1] * args.page_bytes);
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < args.page_bytes / 16) to[i] = from[i];
}

// Rows stand in y, of which a grid has 65,535 at most: more than a step's rows.
dim3 ByElement(int32_t width, int32_t rows) {
  return dim3(CeilDiv(width, kThreads), static_cast<unsigned>(rows));
}

}  // namespace

int Embed(Stream stream, const EmbedArgs& args) {
  if (args.rows == 0) return 0;
  const dim3 grid(static_cast<unsigned>(args.rows));
  // A table of positions is of floats.
  return WithFormat(args.table.format, [&]<WeightFormat kFormat>() {
    switch (args.positions.format) {
      case WeightFormat::kF16:
        return Launch(EmbedKernel<kFormat, WeightFormat::kF16>, grid, kThreads,
                      0, stream, args);
      case WeightFormat::kBF16:
        return Launch(EmbedKernel<kFormat, WeightFormat::kBF16>, grid, kThreads,
                      0, stream, args);
      default:
        return Launch(EmbedKernel<kFormat, WeightFormat::kF32>, grid, kThreads,
                      0, stream, args);
    }
  });
}

int NormRows(Stream stream, const NormArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(NormKernel, dim3(static_cast<unsigned>(args.rows)), kThreads,
                2 * kThreads / 32 * sizeof(float), stream, args);
}

int Activate(Stream stream, const ActivateArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(ActivateKernel, ByElement(args.width, args.rows), kThreads, 0,
                stream, args);
}

int GatherRows(Stream stream, const GatherArgs& args) {
  if (args.num_rows == 0) return 0;
  return Launch(GatherKernel, ByElement(args.width, args.num_rows), kThreads, 0,
                stream, args);
}

int AddRows(Stream stream, const AddArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(AddKernel, ByElement(args.width, args.rows), kThreads, 0,
                stream, args);
}

int CopyPages(Stream stream, const CopyPagesArgs& args) {
  if (args.num_copies == 0) return 0;
  return Launch(CopyPagesKernel,
                dim3(CeilDiv(args.page_bytes / 16, kThreads),
                     static_cast<unsigned>(args.num_copies)),
                kThreads, 0, stream, args);
}

}  // namespace millrace::cuda
