// Convolutions that cuDNN computes, with the same bits for an image whatever
// batch it is in.
//
//   ASSIGN_OR_RETURN(auto cudnn, CudnnConvolutions::Open(context));
//   ASSIGN_OR_RETURN(auto convolution, cudnn->Choose(shape));
//   if (convolution != nullptr) error = cudnn->Call(*convolution, 13, ...);
//
// cuDNN promises the same bits for the same call, not for another number of
// images. So calls have 1, 4, 16 or 64 images, and a batch is cut into such
// calls: 13 are 4, 4, 4 and 1. A shape has one engine configuration for all of
// them: the first in the order of cuDNN's heuristics (mode A, of the largest
// call) whose notes say that it is deterministic and adds in f32 what it
// multiplies, that builds for each number of images within kWorkspaceBytes, and
// that was seen to give numbers, and equal images equal bits in each place of
// each call. No time is measured. A shape without one is for this program's own
// kernels.
//
// Several threads may call while one chooses. A shape has a handle of its own,
// which is used under a lock: an engine that is compiled while it is built, for
// seconds, holds up no call of another shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/gpu/cuda_context.h"
#include "models/gpu/cudnn_graph.h"

namespace millrace::models {

// An engine configuration for a shape.
class CudnnConvolution {
 public:
  const ConvShape& shape() const { return shape_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }  // of any call
  int64_t engine() const { return engine_; }  // its number in the graph
  ~CudnnConvolution();
  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

 private:
  friend class CudnnConvolutions;
  struct Plan {
    int32_t images;
    CudnnGraph graph;
    std::vector<CudnnDescriptor> parts;  // of the configuration
    CudnnDescriptor plan;
  };
  CudnnConvolution(const ConvShape& shape,
                   std::shared_ptr<const CudnnLibrary> library)
      : shape_(shape), library_(std::move(library)) {}

  const ConvShape shape_;
  const std::shared_ptr<const CudnnLibrary> library_;
  mutable Mutex mu_;                // held while a call is made
  cudnn::Handle handle_ = nullptr;  // of the plans and of calls
  std::vector<Plan> plans_;         // the largest call first
  int64_t workspace_bytes_ = 0;
  int64_t engine_ = -1;
};

// Where the tensors of a convolution lie on the device; each image behind the
// one before. Those that the shape has not are null.
struct ConvPlaces {
  const std::byte* x = nullptr;
  const std::byte* w = nullptr;
  const std::byte* bias = nullptr;
  const std::byte* residual = nullptr;
  const std::byte* gate = nullptr;
  std::byte* y = nullptr;
  std::byte* workspace = nullptr;  // [workspace_bytes]
};

class CudnnConvolutions {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
  static constexpr int32_t kMostCallImages = 64;
  // Of the largest call of a shape: the fewest that have so many pixels, about
  // what keeps a large GPU busy. Not measured.
  static constexpr int64_t kEnoughPixels = 1 << 15;
  static int32_t CallImages(const ConvShape& shape);

  // FAILED_PRECONDITION says in one sentence why cuDNN cannot be used.
  static StatusOr<std::unique_ptr<CudnnConvolutions>> Open(
      std::shared_ptr<CudaContext> context);
  ~CudnnConvolutions() = default;
  CudnnConvolutions(const CudnnConvolutions&) = delete;
  CudnnConvolutions& operator=(const CudnnConvolutions&) = delete;

  std::string VersionText() const { return library_->VersionText(); }

  // Null: cuDNN has no engine that gives an image the same bits in any batch.
  // Tries engines on images and weights of its own and waits for the device.
  StatusOr<std::unique_ptr<const CudnnConvolution>> Choose(
      const ConvShape& shape);

  // y of so many images, on `stream` of the context's device, which is the
  // calling thread's. kSuccess or the number of cuDNN's error.
  int Call(const CudnnConvolution& convolution, int64_t images,
           ConvPlaces places, cuda::Stream stream) const;
  // "cuda:0 failed: cuDNN cannot <what>: …" for the number of an error.
  Status Failed(const std::string& what, int error) const;

 private:
  // An engine and how its knobs are set: type and value of each.
  struct Candidate {
    int64_t engine = 0;
    std::vector<std::pair<int, int64_t>> knobs;
  };
  struct Trial;

  CudnnConvolutions(std::shared_ptr<const CudnnLibrary> library,
                    std::shared_ptr<CudaContext> context)
      : library_(std::move(library)), context_(std::move(context)) {}
  // Those whose notes allow them, the best first.
  std::vector<Candidate> Candidates(const ConvShape& shape,
                                    const CudnnGraph& graph) const;
  // None: its notes do not allow it, or it cannot be read.
  std::optional<Candidate> Read(const ConvShape& shape,
                                CudnnDescriptor& config) const;
  CudnnDescriptor PlanOf(const Candidate& candidate, cudnn::Handle handle,
                         CudnnConvolution::Plan& plan) const;
  // False: it does not build for some number of images.
  bool Build(const Candidate& candidate, CudnnConvolution& convolution) const;
  StatusOr<Trial> NewTrial(const ConvShape& shape);
  // Whether it gives numbers, and equal images equal bits.
  StatusOr<bool> IsUsable(const CudnnConvolution& convolution,
                          const Trial& trial);
  int CallOnce(const CudnnConvolution& convolution,
               const CudnnConvolution::Plan& plan, const ConvPlaces& places,
               cuda::Stream stream) const;

  const std::shared_ptr<const CudnnLibrary> library_;
  const std::shared_ptr<CudaContext> context_;
};

}  // namespace millrace::models
