// Where a window's taps read an image: shared by all convolutions.
#pragma once

#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {

// Of a pixel of the result: its place, and the first pixel of its image.
struct Pixel {
  int at[3];
  int64_t image;
};
__device__ inline Pixel PixelAt(const GraphWindow& w, int64_t number) {
  Pixel pixel;
  MILLRACE_UNROLL
  for (int axis = 2; axis >= 0; --axis) {
    pixel.at[axis] = static_cast<int>(number % w.out[axis]);
    number /= w.out[axis];
  }
  pixel.image = number * w.in[0] * w.in[1] * w.in[2];
  return pixel;
}

// The pixel of its image that the tap at these places reads, or -1 where it is
// in the padding. Images have fewer than 2^31 pixels.
__device__ __forceinline__ int ReadAt(const GraphWindow& w, bool transposed,
                                      const Pixel& pixel, const int (&tap)[3]) {
  int read = 0;
  bool inside = true;
  MILLRACE_UNROLL
  for (int axis = 0; axis < 3; ++axis) {
    const int place = tap[axis] * w.dilation[axis];
    int from;
    if (transposed) {
      from = pixel.at[axis] + w.pad[axis] - place;
      inside = inside && from >= 0 && from % w.stride[axis] == 0;
      from /= w.stride[axis];
    } else {
      from = pixel.at[axis] * w.stride[axis] - w.pad[axis] + place;
    }
    inside = inside && from >= 0 && from < w.in[axis];
    read = read * w.in[axis] + from;
  }
  return inside ? read : -1;
}

__device__ __forceinline__ int64_t Taps(const GraphWindow& w) {
  return int64_t{w.kernel[0]} * w.kernel[1] * w.kernel[2];
}

template <class Args>
__device__ __forceinline__ int64_t PixelsOut(const Args& args) {
  const GraphWindow& w = args.window;
  return args.batch * w.out[0] * w.out[1] * w.out[2];
}

// Walks over inputs in the order of their sum: taps, then channels.
struct TapWalk {
  int tap[3];
  int channel;

  __device__ __forceinline__ void Advance(const GraphWindow& window,
                                          int channels, int by) {
    channel += by;
    while (channel >= channels) {
      channel -= channels;
      if (++tap[2] < window.kernel[2]) continue;
      tap[2] = 0;
      if (++tap[1] < window.kernel[1]) continue;
      tap[1] = 0;
      ++tap[0];
    }
  }
  // Behind the last tap there is nothing.
  __device__ __forceinline__ bool IsThere(const GraphWindow& window) const {
    return tap[0] < window.kernel[0];
  }
};

}  // namespace millrace::cuda
