#include "models/graph/cuda/conv_layers.h"

#include <algorithm>
#include <string>

#include "config/base/log.h"

namespace millrace::models::graph {
namespace {

// Of a graph. Images of any size would have engines of their own for each; what
// is behind this many is for kernels, as long as the graph is served.
constexpr size_t kMostShapes = 512;

// cuDNN wants each size of y to be what the window gives.
bool IsWhole(const ConvShape& shape) {
  for (size_t i = 0; i < 3; ++i) {
    const int64_t padded = shape.in[i] + shape.pad[i] + shape.pad_end[i];
    const int64_t taken = shape.dilation[i] * (shape.kernel[i] - 1) + 1;
    if (shape.pad[i] < 0 || shape.pad_end[i] < 0 || padded < taken ||
        (padded - taken) / shape.stride[i] + 1 != shape.out[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

StatusOr<std::unique_ptr<ConvLayers>> ConvLayers::Open(
    const cuda::Module* module, int32_t ordinal) {
  ASSIGN_OR_RETURN(
      auto context,
      CudaContext::Open(
          module, ordinal,
          {.setting = "conv_backend",
           .remedy = "end what else runs on it, or set conv_backend to "
                     "native"}));
  ASSIGN_OR_RETURN(auto cudnn, CudnnConvolutions::Open(std::move(context)));
  return std::unique_ptr<ConvLayers>(new ConvLayers(std::move(cudnn)));
}

std::optional<ConvShape> ConvLayers::ShapeOf(const cuda::GraphConvArgs& args,
                                             const ConvFormats& formats) {
  ConvShape shape;
  shape.precision = args.precision;
  const auto copy = [](const int32_t(&from)[3], std::array<int64_t, 3>& to) {
    std::copy(from, from + 3, to.begin());
  };
  copy(args.window.in, shape.in);
  copy(args.window.out, shape.out);
  copy(args.window.kernel, shape.kernel);
  copy(args.window.stride, shape.stride);
  copy(args.window.dilation, shape.dilation);
  copy(args.window.pad, shape.pad);
  copy(args.window.pad_end, shape.pad_end);
  shape.channels = args.channels;
  shape.outputs = args.outputs;
  shape.groups = args.groups;
  shape.y = formats.y;
  shape.has_bias = formats.has_bias;
  shape.residual = formats.residual;
  shape.gate = formats.gate;
  shape.residual_first = formats.residual && args.epilogue.residual_first;
  shape.f = args.epilogue.f;
  shape.a = args.epilogue.a;
  shape.b = args.epilogue.b;
  if (args.transposed || args.groups < 1 || formats.x != shape.factors() ||
      !IsWhole(shape)) {
    return std::nullopt;
  }
  if (shape.f != cuda::Function::kNone && !PointwiseModeOf(shape.f)) {
    return std::nullopt;
  }
  // Each image begins where the one before ends, and so does each output's row
  // of weights.
  bool is_aligned = shape.x_bytes() % kConvAlignment == 0 &&
                    shape.y_bytes(shape.y) % kConvAlignment == 0 &&
                    shape.w_bytes() / shape.outputs % cuda::kPackedUnit == 0;
  for (const auto& format : {shape.residual, shape.gate}) {
    is_aligned =
        is_aligned && (!format || shape.y_bytes(*format) % kConvAlignment == 0);
  }
  return is_aligned ? std::optional(shape) : std::nullopt;
}

std::optional<const CudnnConvolution*> ConvLayers::Find(
    const ConvShape& shape) {
  MutexLock lock(mu_);
  for (const auto& [known, convolution] : chosen_) {
    if (known == shape) return convolution.get();
  }
  if (chosen_.size() >= kMostShapes) return nullptr;
  return std::nullopt;
}

const CudnnConvolution* ConvLayers::Choose(const ConvShape& shape) {
  if (const auto found = Find(shape)) return *found;
  MutexLock alone(building_);
  // Another thread may have built it while this one waited.
  if (const auto found = Find(shape)) return *found;
  StatusOr<std::unique_ptr<const CudnnConvolution>> tried =
      cudnn_->Choose(shape);
  if (!tried.ok() || *tried == nullptr) {
    LogInfo("native kernels convolve layers of a shape, not cuDNN",
            {{"channels", shape.channels},
             {"outputs", shape.outputs},
             {"why", tried.ok() ? "no engine gives an image the same bits in "
                                  "each batch"
                                : std::string(tried.status().message())}});
  }
  MutexLock lock(mu_);
  chosen_.emplace_back(shape, tried.ok() ? std::move(tried).value() : nullptr);
  return chosen_.back().second.get();
}

}  // namespace millrace::models::graph
