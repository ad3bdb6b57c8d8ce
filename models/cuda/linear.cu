// Rows times a matrix of weights in any format, for steps of few rows: a warp
// computes two outputs of up to eight rows, its lanes share out the inputs. The
// weights are read once for eight rows and become f32 in registers; products
// are summed in f32, each lane's in order, then by the tree of a warp.
#include "models/cuda/product.cuh"
#include "models/cuda/weights.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kOutputs = 2;  // of a warp

template <WeightFormat kFormat, int kRows>
__global__ void __launch_bounds__(kWarps * 32) LinearKernel(LinearArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = (int64_t{blockIdx.x} * kWarps + warp) * kOutputs;
  const int last_output = args.weights.outputs - 1;
  const RowTile tile = TileOf<kRows>(args, blockIdx.y);
  if (first > last_output || tile.first == tile.end) return;  // whole warps
  const float* x_at[kRows];
  MILLRACE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    x_at[r] = args.x + tile.x_of(tile.row(r)) * args.pitch;
  }

  float sums[kOutputs][kRows] = {};
  const int units = args.weights.inputs / 8;
  for (int unit = lane; unit < units; unit += 32) {
    float w[kOutputs][8];
    for (int o = 0; o < kOutputs; ++o) {
      const int64_t output = Min64(first + o, last_output);
      LoadUnit<kFormat>(tile.weights + output * args.weights.row_bytes,
                        args.weights.inputs, unit, w[o]);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto* at = reinterpret_cast<const float4*>(x_at[r]) + 2 * unit;
      const float4 a = at[0], b = at[1];
      const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      for (int o = 0; o < kOutputs; ++o) {
        for (int i = 0; i < 8; ++i) {
          sums[o][r] = fmaf(w[o][i], x[i], sums[o][r]);
        }
      }
    }
  }
  StoreSums(args, tile, first, lane, sums);
}

template <WeightFormat kFormat, int kRows>
int LaunchLinear(Stream stream, const LinearArgs& args) {
  return Launch(LinearKernel<kFormat, kRows>,
                dim3(CeilDiv(args.weights.outputs, kWarps * kOutputs),
                     BlocksOfRows(args, kRows)),
                kWarps * 32, 0, stream, args);
}

}  // namespace

int MultiplyRows(Stream stream, const LinearArgs& args) {
  if (args.rows == 0) return 0;
  return WithFormat(args.weights.format, [&]<WeightFormat kFormat>() {
    if (args.rows == 1) return LaunchLinear<kFormat, 1>(stream, args);
    if (args.rows <= 4) return LaunchLinear<kFormat, 4>(stream, args);
    return LaunchLinear<kFormat, 8>(stream, args);
  });
}

}  // namespace millrace::cuda
