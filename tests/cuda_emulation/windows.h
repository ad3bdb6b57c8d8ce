// Windows in tests of kernels, and what a convolution is by definition.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "models/cuda/graph_kernels.h"

namespace millrace::cuda {

struct Window {
  std::array<int32_t, 3> in, kernel, stride, dilation, pad, pad_end;
  bool transposed = false;
};
// An image, one with all that a window may have, and a signal.
inline constexpr Window kFlat = {{1, 9, 11}, {1, 3, 3}, {1, 1, 1},
                                 {1, 1, 1},  {0, 1, 1}, {0, 1, 1}};
inline constexpr Window kOdd = {{1, 9, 12}, {1, 3, 2}, {1, 2, 3},
                                {1, 2, 1},  {0, 2, 0}, {0, 1, 1}};
inline constexpr Window kSignal = {{1, 1, 23}, {1, 1, 5}, {1, 1, 2},
                                   {1, 1, 2},  {0, 0, 3}, {0, 0, 4}};

inline GraphWindow Of(const Window& w) {
  GraphWindow out{};
  for (size_t i = 0; i < 3; ++i) {
    out.in[i] = w.in[i];
    out.kernel[i] = w.kernel[i];
    out.stride[i] = w.stride[i];
    out.dilation[i] = w.dilation[i];
    out.pad[i] = w.pad[i];
    out.pad_end[i] = w.pad_end[i];
    const int32_t reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
    const int32_t pads = w.pad[i] + w.pad_end[i];
    out.out[i] = w.transposed ? (w.in[i] - 1) * w.stride[i] + reach - pads
                              : (w.in[i] + pads - reach) / w.stride[i] + 1;
  }
  return out;
}
inline int64_t Product(const int32_t (&sizes)[3]) {
  return int64_t{sizes[0]} * sizes[1] * sizes[2];
}
inline int64_t Place(const int32_t (&sizes)[3], const int32_t (&at)[3]) {
  return (int64_t{at[0]} * sizes[1] + at[1]) * sizes[2] + at[2];
}
// Index by index, the last axis first.
inline bool Next(const int32_t (&sizes)[3], int32_t (&at)[3]) {
  for (int axis = 2; axis >= 0; --axis) {
    if (++at[axis] < sizes[axis]) return true;
    at[axis] = 0;
  }
  return false;
}

// The definition: straight, each output gathers; transposed, each input
// spreads. Calls body(place in x, place in w, place in y) for each term of each
// sum; w is [outputs][channels / groups][taps], transposed [channels][outputs /
// groups] [taps].
template <class Args, class Body>
void EachTerm(const Args& c, Body body) {
  const GraphWindow& win = c.window;
  const auto& from_sizes = c.transposed ? win.in : win.out;
  const auto& to_sizes = c.transposed ? win.out : win.in;
  const int64_t ci = c.channels / c.groups, co = c.outputs / c.groups;
  for (int64_t b = 0; b < c.batch; ++b) {
    int32_t at[3] = {};
    do {
      int32_t tap[3] = {};
      do {
        int32_t other[3];
        bool inside = true;
        for (int i = 0; i < 3; ++i) {
          other[i] =
              at[i] * win.stride[i] - win.pad[i] + tap[i] * win.dilation[i];
          inside = inside && other[i] >= 0 && other[i] < to_sizes[i];
        }
        if (!inside) continue;
        const int64_t first = b * Product(from_sizes) + Place(from_sizes, at);
        const int64_t second = b * Product(to_sizes) + Place(to_sizes, other);
        const int64_t in = c.transposed ? first : second;
        const int64_t out = c.transposed ? second : first;
        for (int64_t g = 0; g < c.groups; ++g) {
          for (int64_t i = 0; i < ci; ++i) {
            for (int64_t o = 0; o < co; ++o) {
              const int64_t outer =
                  c.transposed ? (g * ci + i) * co + o : (g * co + o) * ci + i;
              body(in * c.channels + g * ci + i,
                   outer * Product(win.kernel) + Place(win.kernel, tap),
                   out * c.outputs + g * co + o);
            }
          }
        }
      } while (Next(win.kernel, tap));
    } while (Next(from_sizes, at));
  }
}

}  // namespace millrace::cuda
