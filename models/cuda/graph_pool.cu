// Pools of channels-last images and volumes, a thread a value: the greatest or
// the mean of a window, of a whole image too. Means add in pieces of 64 values.
#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {
namespace {

template <GraphFormat kFormat>
__global__ void PoolKernel(GraphPoolArgs args) {
  const GraphWindow& w = args.window;
  const int64_t at = ThreadNumber();
  int64_t left = at / args.channels;
  int first[3];  // of the window, in the image; before it where negative
  for (int axis = 2; axis >= 0; --axis) {
    first[axis] =
        static_cast<int>(left % w.out[axis]) * w.stride[axis] - w.pad[axis];
    left /= w.out[axis];
  }
  if (left >= args.batch) return;
  const int64_t image =
      at % args.channels + left * w.in[0] * w.in[1] * w.in[2] * args.channels;
  float best = -INFINITY;
  float total = 0;
  float sum = 0;
  int64_t count = 0;
  for (int d = 0; d < w.kernel[0]; ++d) {
    const int z = first[0] + d * w.dilation[0];
    if (z < 0 || z >= w.in[0]) continue;
    for (int i = 0; i < w.kernel[1]; ++i) {
      const int row = first[1] + i * w.dilation[1];
      if (row < 0 || row >= w.in[1]) continue;
      for (int j = 0; j < w.kernel[2]; ++j) {
        const int column = first[2] + j * w.dilation[2];
        if (column < 0 || column >= w.in[2]) continue;
        const int64_t pixel = (int64_t{z} * w.in[1] + row) * w.in[2] + column;
        const float value =
            LoadAs<kFormat>(args.x.data, image + pixel * args.channels);
        best = isnan(value) || value > best ? value : best;
        sum += value;
        if (++count % 64 == 0) {
          total += sum;
          sum = 0;
        }
      }
    }
  }
  if (args.kind == PoolOf::kMax) {
    StoreValue(args.y, at, best);
    return;
  }
  if (args.kind == PoolOf::kMeanPadded) {
    count = 1;
    for (int axis = 0; axis < 3; ++axis) {
      const int room = w.in[axis] + w.pad_end[axis] - first[axis];
      const int fit = (room + w.dilation[axis] - 1) / w.dilation[axis];
      count *= fit < w.kernel[axis] ? fit : w.kernel[axis];
    }
  }
  StoreValue(args.y, at, (total + sum) / static_cast<float>(count));
}

}  // namespace

int GraphPool(Stream stream, const GraphPoolArgs& args) {
  const GraphWindow& w = args.window;
  const int64_t count =
      args.batch * w.out[0] * w.out[1] * w.out[2] * args.channels;
  if (count == 0) return 0;
  return WithFormat(args.x.format, [&]<GraphFormat kFormat>() {
    return Launch(PoolKernel<kFormat>, ByThread(count), kGraphThreads, 0,
                  stream, args);
  });
}

}  // namespace millrace::cuda
