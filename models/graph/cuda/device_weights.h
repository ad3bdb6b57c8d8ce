// Constants of a graph on a GPU, uploaded when a plan first reads them there
// and shared by all plans. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/gpu/cuda_context.h"
#include "models/graph/cuda/pack_factors.h"
#include "models/tensor/tensor.h"

namespace millrace::models::graph {

class DeviceWeights {
 public:
  // Uploads go through `context`, which is this object's alone from here on.
  explicit DeviceWeights(std::shared_ptr<CudaContext> context)
      : context_(std::move(context)) {}

  // Where the constant lies, as long as this object lives.
  StatusOr<const std::byte*> FindOrUpload(
      const std::shared_ptr<const Tensor>& constant) EXCLUDES(mu_);
  // The same of weights that are packed for tensor cores.
  StatusOr<const std::byte*> FindOrPack(
      const std::shared_ptr<const Tensor>& constant,
      cuda::GraphPrecision precision, const WeightOrder& order) EXCLUDES(mu_);
  // The same for one plan alone.
  StatusOr<CudaBuffer> PackOwn(const Tensor& constant,
                               cuda::GraphPrecision precision,
                               const WeightOrder& order) EXCLUDES(mu_);
  // The same of constants that one plan alone has, in memory of its own. Of
  // each: where it lies in `buffer`.
  StatusOr<std::vector<const std::byte*>> UploadOwn(
      const std::vector<std::shared_ptr<const Tensor>>& constants,
      CudaBuffer& buffer) EXCLUDES(mu_);

  int64_t bytes() const EXCLUDES(mu_);

 private:
  struct Uploaded {
    std::shared_ptr<const Tensor> constant;  // so that its address stays its
    CudaBuffer buffer;
  };
  using Form = std::pair<cuda::GraphPrecision, WeightOrder>;
  using Key = std::pair<const Tensor*, Form>;  // as it is: in f32, no order

  Status Upload(std::byte* to, const Tensor& constant) REQUIRES(mu_);
  StatusOr<const std::byte*> Keep(const Key& key,
                                  const std::shared_ptr<const Tensor>& constant,
                                  const Tensor& bytes) REQUIRES(mu_);

  mutable Mutex mu_;  // held while a constant is uploaded
  const std::shared_ptr<CudaContext> context_;
  std::map<Key, Uploaded> uploaded_ GUARDED_BY(mu_);
  int64_t bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::models::graph
