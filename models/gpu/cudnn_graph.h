// A convolution of a network, and what is behind it, as an operation graph of
// cuDNN: forward convolution, then pointwise operations that are joined by
// virtual tensors in f32.
//
//   x [images][in…][channels], w [outputs][kernel…][channels / groups]
//   y [images][out…][outputs]
//   sum -> + bias -> + residual, if first -> f -> * gate -> + residual -> y
//
// Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/cuda/graph_kernels.h"
#include "models/gpu/cudnn_descriptor.h"

namespace millrace::models {

// All of it but how many images there are. x and w are in the format of the
// precision. Depth, height and width; those that an image has not are 1.
struct ConvShape {
  cuda::GraphPrecision precision = cuda::GraphPrecision::kF32;
  std::array<int64_t, 3> in = {1, 1, 1};
  std::array<int64_t, 3> out = {1, 1, 1};
  std::array<int64_t, 3> kernel = {1, 1, 1};
  std::array<int64_t, 3> stride = {1, 1, 1};
  std::array<int64_t, 3> dilation = {1, 1, 1};
  std::array<int64_t, 3> pad = {0, 0, 0};      // before the image
  std::array<int64_t, 3> pad_end = {0, 0, 0};  // behind it
  int64_t channels = 0;
  int64_t outputs = 0;
  int64_t groups = 1;
  cuda::GraphFormat y = cuda::GraphFormat::kF32;
  bool has_bias = false;  // f32, of each output
  std::optional<cuda::GraphFormat> residual;
  std::optional<cuda::GraphFormat> gate;
  bool residual_first = false;
  cuda::Function f = cuda::Function::kNone;
  float a = 0;
  float b = 0;
  bool operator==(const ConvShape&) const = default;

  int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
  int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
  // Of x and w.
  cuda::GraphFormat factors() const;
  int64_t factor_bytes() const { return cuda::FactorBytes(precision); }
  int64_t x_bytes() const { return in_pixels() * channels * factor_bytes(); }
  int64_t w_bytes() const {
    return outputs * kernel[0] * kernel[1] * kernel[2] * channels / groups *
           factor_bytes();
  }
  // Of an image in this format, as y lies.
  int64_t y_bytes(cuda::GraphFormat format) const;
};

// Memory of the device that tensors of the graph lie in.
enum class ConvTensor : int64_t { kX = 1, kW, kY, kBias, kResidual, kGate };

// What cuDNN calls the function; none: it has no such.
std::optional<cudnn::PointwiseMode> PointwiseModeOf(cuda::Function f);

// Memory of all tensors begins at multiples of so many bytes.
inline constexpr int64_t kConvAlignment = 16;

struct CudnnGraph {
  std::vector<CudnnDescriptor> parts;  // what the graph is made of
  CudnnDescriptor graph;               // the error of any of them, too
};
// f must have a mode. Without a handle it is a graph that cannot be run.
CudnnGraph DescribeConvolution(
    const std::shared_ptr<const CudnnLibrary>& library, cudnn::Handle handle,
    const ConvShape& shape, int64_t images);

}  // namespace millrace::models
