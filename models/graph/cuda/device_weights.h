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
#include "models/graph/cuda/byte_sums.h"
#include "models/graph/cuda/device_step.h"
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
  // The same of a constant in the form that kernels read.
  StatusOr<const std::byte*> FindOrPack(const PackedConstant& packed)
      EXCLUDES(mu_);
  // The same for one plan alone.
  StatusOr<CudaBuffer> PackOwn(const PackedConstant& packed) EXCLUDES(mu_);
  // Bytes that one plan alone has. Empty: nothing.
  StatusOr<CudaBuffer> UploadBytes(const std::vector<std::byte>& bytes)
      EXCLUDES(mu_);
  // Constants that one plan alone has, in memory of its own. Of each: where it
  // lies in `buffer`.
  StatusOr<std::vector<const std::byte*>> UploadOwn(
      const std::vector<std::shared_ptr<const Tensor>>& constants,
      CudaBuffer& buffer) EXCLUDES(mu_);

  int64_t bytes() const EXCLUDES(mu_);
  ByteWeightSums& byte_sums() { return byte_sums_; }

 private:
  struct Uploaded {
    std::shared_ptr<const Tensor> constant;  // so that its address stays its
    CudaBuffer buffer;
  };
  using Form = std::vector<int64_t>;  // as it is: empty
  using Key = std::pair<const Tensor*, Form>;

  Status Upload(std::byte* to, const std::byte* from, int64_t bytes)
      REQUIRES(mu_);
  StatusOr<const std::byte*> Keep(const Key& key,
                                  const std::shared_ptr<const Tensor>& constant,
                                  const std::byte* bytes, int64_t size)
      REQUIRES(mu_);

  mutable Mutex mu_;  // held while a constant is uploaded
  const std::shared_ptr<CudaContext> context_;
  std::map<Key, Uploaded> uploaded_ GUARDED_BY(mu_);
  int64_t bytes_ GUARDED_BY(mu_) = 0;
  ByteWeightSums byte_sums_;
};

}  // namespace millrace::models::graph
