// What is done to rows of activations between two products: embedding,
// activation, gathering, adding, and copies of KV pages. Norms: norm.cu.
#include "models/cuda/product.cuh"
#include "models/cuda/round.cuh"
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
    auto* out = reinterpret_cast<float4*>(x + 8 * unit);
    out[0] = {w[0], w[1], w[2], w[3]};
    out[1] = {w[4], w[5], w[6], w[7]};
  }
}

// GELU in its tanh form (Hendrycks and Gimpel 2016).
__device__ __forceinline__ float Gelu(float x) {
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}
__device__ __forceinline__ float Silu(float x) { return x / (1.0f + expf(-x)); }

__device__ __forceinline__ float Activated(RowFunction function, float gate,
                                           float up) {
  switch (function) {
    case RowFunction::kSilu:
      break;
    case RowFunction::kGelu:
      return __fmul_rn(Gelu(gate), up);
    case RowFunction::kGeluErf:
      return __fmul_rn(0.5f * gate * (1.0f + erff(0.7071067811865476f * gate)),
                       up);
    case RowFunction::kClampedSwiglu: {
      const float g = fminf(gate, 7.0f);
      const float u = fminf(fmaxf(up, -7.0f), 7.0f);
      return __fmul_rn(g / (1.0f + expf(-1.702f * g)), u + 1.0f);
    }
  }
  return __fmul_rn(Silu(gate), up);
}

__device__ __forceinline__ float4 AddFour(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Values [at, at + 4) of a row's activation.
__device__ __forceinline__ float4 ActivateFour(const ActivateArgs& args,
                                               int64_t row, int at) {
  const float* x = args.x + row * args.pitch;
  const bool aligned = IsAligned(args.x, args.pitch);
  float4 v = LoadFour(x, at, args.width, aligned);
  float4 up = {1, 1, 1, 1};
  if (args.gated) {
    up = LoadFour(x + args.width, at, args.width,
                  aligned && args.width % 4 == 0);
  }
  if (args.bias != nullptr) {
    const float* bias = args.bias + int64_t{args.bias_of[row]} * 2 * args.width;
    v = AddFour(v, LoadFour(bias, at, args.width, false));
    up = AddFour(up, LoadFour(bias + args.width, at, args.width, false));
  }
  return {
      Activated(args.function, v.x, up.x), Activated(args.function, v.y, up.y),
      Activated(args.function, v.z, up.z), Activated(args.function, v.w, up.w)};
}

// Blocks along a row. Rows are the grid's x: uses of experts may be more than
// its y has.
__global__ void __launch_bounds__(kThreads) ActivateKernel(ActivateArgs args) {
  const RoundedRows& to = args.rounded;
  const int64_t row = RowOf(args.row_ids, blockIdx.x);
  const int at = 4 * static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  const float4 v = ActivateFour(args, row, at);
  if (args.out != nullptr) {
    StoreFour(args.out + row * args.out_pitch, at, args.width,
              IsAligned(args.out, args.out_pitch), v);
  }
  if (to.format == InputFormat::kInt8) StoreInt8(to, row, at, v);
  if (to.format == InputFormat::kBF16) Store16Bit(to, row, at, v, {});
}

// A block a row, which computes each value twice: f16 are scaled by the
// greatest.
__global__ void __launch_bounds__(kThreads)
    ActivateHalfKernel(ActivateArgs args) {
  const int64_t row = RowOf(args.row_ids, blockIdx.x);
  const int first = 4 * static_cast<int>(threadIdx.x);
  const int inputs = args.rounded.inputs;
  float greatest = 0;
  MILLRACE_UNROLL_BY(4)
  for (int at = first; at < inputs; at += 4 * kThreads) {
    const float4 v = ActivateFour(args, row, at);
    greatest = fmaxf(greatest, GreatestOf(v));
    if (args.out != nullptr) {
      StoreFour(args.out + row * args.out_pitch, at, args.width,
                IsAligned(args.out, args.out_pitch), v);
    }
  }
  const HalfScale scale =
      ScaleOfHalves(BlockMax(greatest, SharedMemory<float>()));
  MILLRACE_UNROLL_BY(4)
  for (int at = first; at < inputs; at += 4 * kThreads) {
    Store16Bit(args.rounded, row, at, ActivateFour(args, row, at), scale);
  }
}

__global__ void GatherKernel(GatherArgs args) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= args.width) return;
  const int64_t place = row / args.repeats;
  const int64_t of = args.rows != nullptr ? args.rows[place] : place;
  const float value = args.from[of * args.pitch + i];
  args.to[row * args.pitch + i] =
      args.weights != nullptr ? args.weights[row] * value : value;
}

__global__ void __launch_bounds__(kThreads) AddRowsKernel(AddRowsArgs args) {
  const int64_t begin = blockIdx.y * args.pitch;
  const int at = 4 * static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const bool aligned =
      IsAligned(args.x, args.pitch) && IsAligned(args.y, args.pitch);
  const float4 x = LoadFour(args.x + begin, at, args.width, aligned);
  float4 y = LoadFour(args.y + begin, at, args.width, aligned);
  y.x = fmaf(args.scale, x.x, y.x);
  y.y = fmaf(args.scale, x.y, y.y);
  y.z = fmaf(args.scale, x.z, y.z);
  y.w = fmaf(args.scale, x.w, y.w);
  StoreFour(args.y + begin, at, args.width, aligned, y);
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

int Activate(Stream stream, const ActivateArgs& args) {
  if (args.rows == 0) return 0;
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.rounded.format == InputFormat::kF16) {
    return Launch(ActivateHalfKernel, dim3(rows), kThreads,
                  kThreads / 32 * sizeof(float), stream, args);
  }
  const int64_t values =
      args.width > args.rounded.inputs ? args.width : args.rounded.inputs;
  return Launch(ActivateKernel, dim3(rows, CeilDiv(values, 4 * kThreads)),
                kThreads, 0, stream, args);
}

int GatherRows(Stream stream, const GatherArgs& args) {
  if (args.num_rows == 0) return 0;
  return Launch(GatherKernel, ByElement(args.width, args.num_rows), kThreads, 0,
                stream, args);
}

int AddRows(Stream stream, const AddRowsArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(
      AddRowsKernel,
      dim3(CeilDiv(args.width, 4 * kThreads), static_cast<unsigned>(args.rows)),
      kThreads, 0, stream, args);
}

int CopyPages(Stream stream, const CopyPagesArgs& args) {
  if (args.num_copies == 0) return 0;
  return Launch(CopyPagesKernel,
                dim3(CeilDiv(args.page_bytes / 16, kThreads),
                     static_cast<unsigned>(args.num_copies)),
                kThreads, 0, stream, args);
}

}  // namespace millrace::cuda
