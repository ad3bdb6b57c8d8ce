// The end of products and convolutions whose sums were cut into pieces that
// several blocks multiplied: a thread adds four outputs of a row.
#include "models/cuda/graph_tensor.cuh"

namespace millrace::cuda {
namespace {

__global__ void __launch_bounds__(kGraphThreads)
    JoinPiecesKernel(JoinPiecesArgs args) {
  const int64_t fours = (args.n + 3) / 4;
  const int64_t thread = ThreadNumber();
  if (thread >= args.count * args.m * fours) return;
  const int64_t output = thread % fours * 4;
  const int64_t row = thread / fours % args.m;
  const int64_t product = thread / fours / args.m;
  TensorResult result = ResultOf(args);
  ForStackIndices(args, product, [&](int axis, int64_t index) {
    result.start += index * args.y_strides[axis];
  });
  const float* at = args.partial + (product * args.m + row) * args.n + output;
  const int64_t piece = args.count * args.m * args.n;
  float4 sums = {0, 0, 0, 0};
  if (args.n % 4 == 0) {
    sums = *reinterpret_cast<const float4*>(at);
    for (int64_t i = 1; i < args.pieces; ++i) {
      sums = Sum(sums, *reinterpret_cast<const float4*>(at + i * piece));
    }
  } else {
    float each[4] = {0, 0, 0, 0};
    for (int64_t j = 0; j < Min64(4, args.n - output); ++j) {
      each[j] = at[j];
      for (int64_t i = 1; i < args.pieces; ++i) each[j] += at[i * piece + j];
    }
    sums = {each[0], each[1], each[2], each[3]};
  }
  StoreFour(result, row, output, sums);
}

}  // namespace

int GraphJoinPieces(Stream stream, const JoinPiecesArgs& args) {
  JoinPiecesArgs with = args;
  with.wide = IsWide(args);
  return Launch(JoinPiecesKernel,
                ByThread(args.count * args.m * ((args.n + 3) / 4)),
                kGraphThreads, 0, stream, with);
}

}  // namespace millrace::cuda
