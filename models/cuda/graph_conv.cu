// Convolutions of channels-last images and volumes, straight and transposed, as
// products whose left factor is looked up in the image (implicit GEMM). Where a
// group has few outputs, as in depthwise layers, a thread computes one of them.
// Both add an output's products in the same order: by taps, then by channels.
#include "models/cuda/graph_tile.cuh"
#include "models/cuda/graph_window.cuh"

namespace millrace::cuda {
namespace {

// The pixel that a tap reads, or -1 where it is in the padding.
__device__ int64_t Read(const GraphConvArgs& args, const Pixel& pixel,
                        int64_t tap) {
  const GraphWindow& w = args.window;
  int at[3];
  for (int axis = 2; axis >= 0; --axis) {
    at[axis] = static_cast<int>(tap % w.kernel[axis]);
    tap /= w.kernel[axis];
  }
  const int read = ReadAt(w, args.transposed, pixel, at);
  return read < 0 ? -1 : pixel.image + read;
}

// Of input (tap, channel of the group) and output of the group.
__device__ float Weight(const GraphConvArgs& args, int64_t group, int64_t tap,
                        int64_t channel, int64_t output) {
  const int64_t taps = Taps(args.window);
  const int64_t channels = args.channels / args.groups;
  const int64_t outputs = args.outputs / args.groups;
  const int64_t at =
      args.transposed
          ? ((group * channels + channel) * outputs + output) * taps + tap
          : ((group * outputs + output) * channels + channel) * taps + tap;
  return args.w[at];
}

template <GraphFormat kFormat>
__global__ void __launch_bounds__(kGraphThreads)
    ConvTileKernel(GraphConvArgs args) {
  const int64_t channels = args.channels / args.groups;
  const int64_t outputs = args.outputs / args.groups;
  const int64_t tiles = (outputs + kTile - 1) / kTile;
  const int64_t row0 = blockIdx.x / tiles * kTile;
  const int64_t output0 = blockIdx.x % tiles * kTile;
  for (int64_t group = blockIdx.y; group < args.groups; group += gridDim.y) {
    MultiplyTile(
        PixelsOut(args), outputs, Taps(args.window) * channels, row0, output0,
        [&](int64_t row, int64_t input) {
          const int64_t pixel =
              Read(args, PixelAt(args.window, row), input / channels);
          return pixel < 0
                     ? 0.0f
                     : LoadAs<kFormat>(args.x.data, pixel * args.channels +
                                                        group * channels +
                                                        input % channels);
        },
        [&](int64_t input, int64_t output) {
          return Weight(args, group, input / channels, input % channels,
                        output);
        },
        [&](int64_t row, int64_t output, float sum) {
          const int64_t own = group * outputs + output;
          const int64_t at = row * args.outputs + own;
          StoreValue(args.y, at, Finish(args.epilogue, sum, own, at));
        });
  }
}

template <GraphFormat kFormat>
__global__ void ConvDirectKernel(GraphConvArgs args) {
  const int64_t at = ThreadNumber();
  if (at >= PixelsOut(args) * args.outputs) return;
  const int64_t channels = args.channels / args.groups;
  const int64_t outputs = args.outputs / args.groups;
  const int64_t own = at % args.outputs;
  const int64_t group = own / outputs;
  const Pixel pixel = PixelAt(args.window, at / args.outputs);
  const int64_t taps = Taps(args.window);
  float sum = 0;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t read = Read(args, pixel, tap);
    for (int64_t c = 0; c < channels; ++c) {
      const float x =
          read < 0 ? 0.0f
                   : LoadAs<kFormat>(args.x.data, read * args.channels +
                                                      group * channels + c);
      sum = fmaf(x, Weight(args, group, tap, c, own % outputs), sum);
    }
  }
  StoreValue(args.y, at, Finish(args.epilogue, sum, own, at));
}

}  // namespace

int GraphConv(Stream stream, const GraphConvArgs& args) {
  const GraphWindow& w = args.window;
  const int64_t pixels = args.batch * w.out[0] * w.out[1] * w.out[2];
  if (pixels == 0 || args.outputs == 0) return 0;
  if (args.precision != GraphPrecision::kF32 &&
      GroupsOnTensors(args.groups, args.outputs)) {
    return GraphConvOnTensors(stream, args);
  }
  constexpr int kFewOutputs = 8;
  return WithFormat(args.x.format, [&]<GraphFormat kFormat>() {
    if (args.groups > 1 && args.outputs / args.groups < kFewOutputs) {
      return Launch(ConvDirectKernel<kFormat>, ByThread(pixels * args.outputs),
                    kGraphThreads, 0, stream, args);
    }
    return Launch(ConvTileKernel<kFormat>,
                  ByTile(pixels, args.outputs / args.groups, args.groups),
                  kGraphThreads, kTileBytes, stream, args);
  });
}

}  // namespace millrace::cuda
