// Convolutions of a graph that cuDNN computes (models/gpu/
// cudnn_convolutions.h), with what is behind them: which layers these are, and
// one of them.
//
//   ASSIGN_OR_RETURN(auto layers, ConvLayers::Open(module, 0));
//   const CudnnConvolution* conv = layers->Choose(shape);  // null: use kernels
//   step.scratch_bytes = conv->workspace_bytes();
//   error = layers->Convolve(*conv, images, places, stream);
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/gpu/cuda_context.h"
#include "models/gpu/cudnn_convolutions.h"

namespace millrace::models::graph {

// Formats of what a layer reads and writes in a plan.
struct ConvFormats {
  cuda::GraphFormat x = cuda::GraphFormat::kF32;
  cuda::GraphFormat y = cuda::GraphFormat::kF32;
  std::optional<cuda::GraphFormat> residual;  // none: there is none
  std::optional<cuda::GraphFormat> gate;
  bool has_bias = false;
};

class ConvLayers {
 public:
  // FAILED_PRECONDITION says in one sentence why cuDNN cannot be used.
  static StatusOr<std::unique_ptr<ConvLayers>> Open(const cuda::Module* module,
                                                    int32_t ordinal);

  // Of a convolution as kernels take it, with its precision and what is behind
  // it; none: cuDNN cannot read or write it as it lies, or lacks the function.
  // The batch does not decide.
  static std::optional<ConvShape> ShapeOf(const cuda::GraphConvArgs& args,
                                          const ConvFormats& formats);

  // An engine for the shape, of which there is one as long as this lives; null:
  // there is none, or trying failed, which is a line in the log. What was
  // chosen is there at once; a new shape takes up to seconds, and waits for
  // others that are new.
  const CudnnConvolution* Choose(const ConvShape& shape)
      EXCLUDES(mu_, building_);

  // y of so many images. 0, or cuDNN's error times -1.
  int Convolve(const CudnnConvolution& convolution, int64_t images,
               const ConvPlaces& places, cuda::Stream stream) const {
    return -cudnn_->Call(convolution, images, places, stream);
  }
  // For the number of cuDNN's error.
  Status Failed(int error) const { return cudnn_->Failed("convolve", error); }

 private:
  explicit ConvLayers(std::unique_ptr<CudnnConvolutions> cudnn)
      : cudnn_(std::move(cudnn)) {}

  // None: it was not chosen yet.
  std::optional<const CudnnConvolution*> Find(const ConvShape& shape)
      EXCLUDES(mu_);

  const std::unique_ptr<CudnnConvolutions> cudnn_;
  Mutex building_;  // held while engines are tried: one thread may choose
  Mutex mu_;
  // Null: kernels convolve.
  std::vector<std::pair<ConvShape, std::unique_ptr<const CudnnConvolution>>>
      chosen_ GUARDED_BY(mu_);
};

}  // namespace millrace::models::graph
