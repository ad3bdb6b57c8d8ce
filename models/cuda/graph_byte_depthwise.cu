// Depthwise convolutions of bytes: a thread has four neighbouring channels of a
// pixel, and takes four taps at once, whose bytes it turns around so that each
// channel's four are one `dp4a`. Any other number of channels: one a thread.
#include "models/cuda/byte_products.cuh"
#include "models/cuda/graph_byte_end.cuh"
#include "models/cuda/graph_window.cuh"

namespace millrace::cuda {
namespace {

// Byte i of word j becomes byte j of word i.
__device__ __forceinline__ void TurnAround(uint32_t (&words)[4]) {
  const uint32_t a = __byte_perm(words[0], words[1], 0x5140);
  const uint32_t b = __byte_perm(words[2], words[3], 0x5140);
  const uint32_t c = __byte_perm(words[0], words[1], 0x7362);
  const uint32_t d = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(a, b, 0x5410);
  words[1] = __byte_perm(a, b, 0x7632);
  words[2] = __byte_perm(c, d, 0x5410);
  words[3] = __byte_perm(c, d, 0x7632);
}

template <int kChannels>
__global__ void DepthwiseKernel(GraphByteLayerArgs args) {
  const GraphWindow& w = args.window;
  const int64_t work = ThreadNumber();
  const int64_t pieces = args.channels / kChannels;
  const int64_t pixel = work / pieces;
  if (pixel >= PixelsOut(args)) return;
  const int channel = static_cast<int>(work % pieces) * kChannels;
  const Pixel at = PixelAt(w, pixel);
  const uint32_t zero =
      args.epilogue.x_zero != nullptr ? *args.epilogue.x_zero : args.zero;
  const uint32_t padding = zero * 0x01010101u;
  const auto* weights =
      reinterpret_cast<const Neighbours<uint32_t, kChannels>*>(args.w) +
      channel / kChannels;
  Neighbours<int32_t, kChannels> sums = {};
  TapWalk walk = {};
  const int taps = static_cast<int>(Taps(w));
  for (int tap = 0; tap < taps; tap += 4) {
    uint32_t x[4];
    MILLRACE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int read =
          walk.IsThere(w) ? ReadAt(w, args.transposed, at, walk.tap) : -1;
      x[i] = padding;
      if (read >= 0) {
        const uint8_t* from =
            args.x + (at.image + read) * args.channels + channel;
        if constexpr (kChannels == 4) {
          x[i] = *reinterpret_cast<const uint32_t*>(from);
        } else {
          x[i] = *from;
        }
      }
      walk.Advance(w, 1, 1);
    }
    TurnAround(x);
    const Neighbours<uint32_t, kChannels> four =
        weights[int64_t{tap / 4} * pieces];
    MILLRACE_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      sums.at[c] = DotBytes(x[c], four.at[c], sums.at[c]);
    }
  }
  FinishBytes<kChannels>(args, sums, channel, pixel * args.channels + channel,
                         kChannels, args.wide);
}

}  // namespace

int GraphByteDepthwise(Stream stream, const GraphByteLayerArgs& args) {
  const GraphWindow& w = args.window;
  const int64_t count =
      args.batch * w.out[0] * w.out[1] * w.out[2] * args.channels;
  if (count == 0) return 0;
  GraphByteLayerArgs with = args;
  const auto x = reinterpret_cast<uintptr_t>(args.x);
  const auto weights = reinterpret_cast<uintptr_t>(args.w);
  if (args.channels % 4 == 0 && x % 4 == 0 && weights % 16 == 0) {
    with.wide = IsWide(args, args.channels, 4);
    return Launch(DepthwiseKernel<4>, ByThread(count / 4), kGraphThreads, 0,
                  stream, with);
  }
  with.wide = true;
  return Launch(DepthwiseKernel<1>, ByThread(count), kGraphThreads, 0, stream,
                with);
}

}  // namespace millrace::cuda
